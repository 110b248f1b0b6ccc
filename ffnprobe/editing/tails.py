"""The rest of several prompts, each from a position on, from a layer on, as one batch.

A change at a subject's last token leaves earlier positions as they were: their keys and values are
kept from the clean run, and only the tokens from the subject's last on are run again. Tails of
different lengths are padded behind, where causal attention never looks. Gradients go through, so that
a layer's output can be optimised at the cost of a few tokens' pass.

`ffnprobe.interventions.replay` does the same for variants of one prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.editing.requests import Context
from ffnprobe.models.forward import Hooks, watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import Past, add_up, finish_write, keep_past, normalise, step, unembed

Rows = Float[Tensor, "prompt pos d_model"]


@dataclass(frozen=True, eq=False)
class Tails:
    """Prompts from their subjects' last tokens on, ready to run on from a layer's MLP."""

    model: Model
    layer: int
    contexts: tuple[Context, ...]
    keys: Float[Tensor, "prompt neuron"]  # activations at the subject's last token
    totals: Float[Tensor, "prompt d_model"]  # what they add up to there, with b_out
    before: Float[Tensor, "prompt d_model"]  # the stream there before the MLP adds to it
    after: Rows  # the stream that leaves the layer, from there on
    kept: tuple[Past, ...]  # keys and values of each later layer, before there

    def log_probabilities(
        self, shifts: Float[Tensor, "prompt d_model"]
    ) -> Float[Tensor, "read vocab"]:
        """Shift what the layer's answers add up to, run on, and read every context's `reads`."""
        rows = self.after.clone()
        if self.model.config.has_post_norms:
            rows[:, 0] = self.before + finish_write(self.model, self.layer, self.totals + shifts)
        else:
            rows[:, 0] = self.after[:, 0] + shifts
        starts = torch.tensor([one.start for one in self.contexts], device=rows.device)[:, None]
        at = starts + torch.arange(rows.shape[1], device=rows.device)
        for number, kept in enumerate(self.kept, start=self.layer + 1):
            (rows,) = step(self.model, number, [rows], [at], past=[kept])
        owners = [order for order, one in enumerate(self.contexts) for _ in one.reads]
        offsets = [read - one.start for one in self.contexts for read in one.reads]
        logits = unembed(self.model, normalise(self.model, rows[owners, offsets]))
        return torch.log_softmax(logits, dim=-1)


@torch.no_grad()
def open_tails(model: Model, layer: int, contexts: Sequence[Context]) -> Tails:
    """Run the prompts once and keep what their tails need."""
    longest = max(len(one.ids) for one in contexts)
    wide = max(len(one.ids) - one.start for one in contexts)
    first = max(one.start for one in contexts)
    padded = torch.tensor([[*one.ids, *[0] * (longest - len(one.ids))] for one in contexts])
    rows = torch.arange(len(contexts))
    starts = torch.tensor([one.start for one in contexts])
    found: dict[str, Tensor] = {}
    kept: list[Past] = []
    # What is kept past a prompt's own start is padding: far ahead of every query.
    at = torch.arange(first)[None]
    seen_at = torch.where(at < starts[:, None], at, 2 * model.config.positions)

    def keep_start(name: str, tensor: Tensor) -> None:
        found[name] = tensor[rows, starts].clone()

    def keep_stream(number: int, stream: Tensor) -> None:
        if number == layer + 1:
            positions = (starts[:, None] + torch.arange(wide)).clamp(max=longest - 1)
            found["after"] = stream[rows[:, None], positions].clone()
        if number < last:
            past = keep_past(model, number, stream[:, :first], at.to(stream.device))
            kept.append(past._replace(at=seen_at.to(stream.device)))

    last = model.config.layers
    taps: Hooks = {
        ("activations", layer): partial(keep_start, "keys"),
        ("before_mlp", layer): partial(keep_start, "before"),
        **{("before_attention", n): partial(keep_stream, n) for n in range(layer + 1, last)},
        ("final", 0): partial(keep_stream, last),
    }
    watch(model, padded, taps)
    return Tails(
        model, layer, tuple(contexts), found["keys"], add_up(model, layer, found["keys"]),
        found["before"], found["after"], tuple(kept),
    )  # fmt: skip

"""Who owns an answer's logit once attention's part is given back to what it carried, to the end.

    R(L) = u_t / s_T at T        R(l) = R(l + 1) + Σ_h c(l, h)         c as in `carrying`

R(l + 1) is the direction along which what layer l writes at a position counts: directly at T, and
through every head above it, and the heads that read those, however many. So no head is left over:

    logit = Σ embeddings · R(0) + Σ_l Σ_n a_n (w_n · R(l + 1)) + biases + constants

Patterns and scales are held as they were. The account is closed against the model's logit, or it is an
error. `paths` takes one step (or as many as asked) and shows what is left of heads; this takes all.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> owners = find_owners(fp.attribute(trace, " basketball"))
>>> abs(owners.total - owners.pushes.logit) < 1e-3
True
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.carrying import Readers, carry_back, gather_written, read_end
from ffnprobe.tracing.path_tables import Source, carry_sources
from ffnprobe.tracing.pushes import Pushes


@dataclass(frozen=True, eq=False)
class Owners:
    """What every neuron, embedding and bias pushes at every position, directly and through heads.

    `through` is what neurons push through attention alone; at the last position a neuron also pushes
    directly, as `attribute` says.
    """

    pushes: Pushes
    readers: Readers
    through: Float[Tensor, "layer pos neuron"]
    embeddings: Float[Tensor, " pos"]
    biases: Float[Tensor, " pos"]

    @property
    def total(self) -> float:
        """What all owners and constants add up to: the logit."""
        direct = float(self.pushes.values.double().sum())
        carried = sum(float(t.double().sum()) for t in (self.through, self.embeddings, self.biases))
        return direct + carried + sum(self.pushes.account.constants.values())

    def name_heads(self, sources: Sequence[Source]) -> list[tuple[str, float]]:
        """Name the head that carried most of each neuron's push from its position, and how much."""
        if not sources:
            return []
        shares = carry_sources(self.pushes.trace, self.readers, sources)
        named = []
        for own in shares:
            toward = own * (1.0 if own.double().sum() >= 0 else -1.0)
            strongest = int(rearrange(toward, "layer head -> (layer head)").argmax())
            layer, head = divmod(strongest, own.shape[-1])
            carried = float(own[layer, head])
            named.append((f"L{layer}H{head}" if carried else "", carried))
        return named


def describe_elsewhere(pushes: Pushes) -> str:
    """Say how much of an answer's logit attention brought from the token that most of it is from.

    Nothing where that is little: less than a tenth of the logit.
    """
    owners, last = find_owners(pushes), pushes.position
    own = owners.through.double().sum(dim=(0, 2)) + owners.embeddings.double()
    if not last or float(own[:last].abs().max()) < 0.1 * abs(pushes.logit):
        return ""
    most = int(own[:last].abs().argmax())
    return (
        f"{float(own[most]):.1f} of {pushes.logit:.1f} logits come through attention from "
        f"{pushes.trace.tokens[most]}: paths, explain"
    )


@torch.no_grad()
def find_owners(pushes: Pushes) -> Owners:
    """Give every head's push back to what it carried, through as many heads as there are."""
    trace, end = pushes.trace, pushes.position
    model = trace.model
    readers = read_end(trace, pushes.direction / trace.final_scale[end], end)
    for layer in reversed(range(model.config.layers)):
        carriers = carry_back(trace, layer, readers)
        readers[layer] = readers[layer + 1] + reduce(
            carriers, "head pos d_model -> pos d_model", "sum"
        )
    written = gather_written(trace, end + 1)
    amounts = trace.amounts[:, : end + 1]
    through = torch.zeros_like(amounts)
    pattern = "pos d_model, neuron d_model -> pos neuron"
    for layer in range(model.config.layers):
        along = einsum(readers[layer + 1], model.answers[layer], pattern)
        through[layer] = along.cpu() * amounts[layer]
    through[:, end] -= pushes.values
    through[-1] = 0  # no head reads what the last layer writes
    every = "kind pos d_model, pos d_model -> pos"
    found = Owners(
        pushes=pushes,
        readers=readers,
        through=through,
        embeddings=einsum(written.embeddings, readers[0], every).cpu(),
        biases=einsum(
            written.biases, readers[1:], "layer pos d_model, layer pos d_model -> pos"
        ).cpu(),
    )
    named = (
        f"the logit of {model.vocab.show(pushes.answer)}, heads given back to what they carried,"
    )
    check_closed(found.total, pushes.logit, named=named)
    return found

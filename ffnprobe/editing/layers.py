"""Which layer to edit: the one whose MLP, removed at the subject's last token, costs the answer most.

This is one column of the map of effects (`ablate_layers`), for the model's own answer before the edit,
added up over the facts. The last layer never has an effect there: no later head reads what it writes.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.requests import Context, Request
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.choices import choose_replacement, usual_replacement
from ffnprobe.interventions.readout import read_answer
from ffnprobe.interventions.sweeps import sweep_moves
from ffnprobe.models.model import Model
from ffnprobe.tracing.answers import predicted
from ffnprobe.tracing.running import run

# Of many facts, so many are asked.
FACTS_ASKED = 8
MOST_LAYERS = 5


def choose_layers(
    model: Model,
    layer: int | None,
    method: str,
    requests: Sequence[Request],
    written: Sequence[Sequence[Context]],
    moments: KeyMoments,
) -> tuple[tuple[int, ...], Float[Tensor, " layer"] | None]:
    """Return the layers to edit, in order, and the effects they were chosen by (None if named)."""
    effects = None
    if layer is None:
        effects = map_subjects(model, requests, written, moments)
        # Layer 0 sees hardly more than the token itself, which other subjects share.
        measured = [n for n in moments.layers if n > 0] or list(moments.layers)
        layer = measured[int(effects[measured].argmax())]
    else:
        (layer,) = model.find_layers([layer])
        if layer == model.config.layers - 1 and _reads_later(written):
            raise OptionRefused(
                f"layer {layer} is the last: what it writes at the subject reaches no later token.",
                remedy="an earlier layer",
            )
    moments.of(layer)
    if method == "rome" or model.config.has_post_norms:
        return (layer,), effects
    many = min(MOST_LAYERS, 1 + model.config.layers // 6)
    return tuple(n for n in range(layer - many + 1, layer + 1) if n in moments.layers), effects


def _reads_later(written: Sequence[Sequence[Context]]) -> bool:
    return all(one.reads[0] > one.start for contexts in written for one in contexts)


def map_subjects(
    model: Model,
    requests: Sequence[Request],
    written: Sequence[Sequence[Context]],
    moments: KeyMoments,
) -> Float[Tensor, " layer"]:
    """Measure what each layer's MLP does for the answer at the subject's last token, in logits."""
    means = moments.means(model)
    replacement = choose_replacement(model, usual_replacement(model, means))
    every = range(model.config.layers)
    total = torch.zeros(model.config.layers)
    for request, contexts in list(zip(requests, written, strict=True))[:FACTS_ASKED]:
        trace = run(model, request.prompt, patterns=False)
        readout = read_answer(trace, predicted(trace), log_probability=False)
        position = contexts[0].start
        given = replacement.expand(-1, position + 1, -1)
        moves = [readout.replay.replaced(layer, given[layer])[position] for layer in every]
        sites = [(layer, position) for layer in every]
        total += sweep_moves(readout, sites, torch.stack(moves)[:, None]).logit
    return total

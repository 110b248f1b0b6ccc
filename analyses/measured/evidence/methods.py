"""Seven ways to choose the neurons behind an answer, each a ranking of neurons at positions."""

import random
from collections.abc import Callable

import torch
from torch import Tensor

import ffnprobe as fp
from analyses.measured.evidence.facts import Known
from ffnprobe.interventions.question import ask
from ffnprobe.interventions.replay import Replay, advance
from ffnprobe.models.step import cap, normalise
from ffnprobe.tracing.attention import find_owners

Source = tuple[fp.NeuronId, int]
MOST, CANDIDATES, STEPS = 50, 100, 20
# Variants of so many layers run as one batch: reading the weights costs as much as the products.
LAYERS_AT_ONCE = 6


def contrast_with_paths(fact: Known) -> list[Source]:
    """Contrast with paths: push and gradient propose, the exact effect at contrast means decides."""
    estimates = fp.estimate(fact.trace, fact.token, contrast=fact.contrast).values
    (pushes,) = fp.attribute(fact.trace, fact.token).pieces
    through = find_owners(pushes).through.clone()
    through[:, -1] = pushes.values
    proposed = {
        *_strongest(estimates, fact.positions, CANDIDATES),
        *_strongest(through, fact.positions, CANDIDATES),
    }
    return _decide(fact, proposed, contrast=fact.contrast)


def mean_removal(fact: Known) -> list[Source]:
    """Removal to the model's mean (zero where it is not known), at the last position and the peak."""
    estimates = fp.estimate(fact.trace, fact.token).values
    last = len(fact.trace) - 1
    costs = estimates[:, 1:last].clamp(min=0).sum(dim=(0, 2))
    positions = [last, *([1 + int(costs.argmax())] if len(costs) else [])]
    return _decide(fact, set(_strongest(estimates, positions, 2 * CANDIDATES)))


def direct_push(fact: Known) -> list[Source]:
    """The direct push at the last position."""
    pushes = fp.attribute(fact.trace, fact.token).values
    return _strongest(pushes[:, None], [0], MOST, at=len(fact.trace) - 1)


def gradient_difference(fact: Known) -> list[Source]:
    """Gradient times the difference from the contrast mean."""
    values = fp.estimate(fact.trace, fact.token, contrast=fact.contrast).values
    return _strongest(values, fact.positions, MOST)


def integrated_gradients(fact: Known) -> list[Source]:
    """Integrated gradients of the answer's probability from zero, as the knowledge-neurons paper has it.

    Each layer by itself, at the last position, in 20 steps; several layers run as one batch.
    """
    replay, last = Replay(fact.trace), len(fact.trace) - 1
    model, layers = fact.trace.model, fact.trace.model.config.layers
    unembedding, bias = (replay.held(t) for t in (model.unembedding, model.unembedding_bias))
    own = replay.held(fact.trace.activations[:, last])
    alphas = replay.held((torch.arange(STEPS) + 1.0)[:, None, None] / STEPS)
    found = torch.zeros(layers, model.config.d_mlp)
    for first in range(0, layers, LAYERS_AT_ONCE):
        scaled = {
            layer: (alphas * own[layer]).requires_grad_()
            for layer in range(first, min(first + LAYERS_AT_ONCE, layers))
        }

        def edit(layer: int, activations: Tensor, *, to: dict[int, Tensor] = scaled) -> Tensor:
            # The variants of a layer begin in it, behind those of the layers before.
            return torch.cat([activations[:-STEPS], to[layer]]) if layer in to else activations

        with torch.enable_grad():
            streams = replay.entering(first, start=last)[None][:0]
            for layer in range(first, layers):
                if layer in scaled:
                    clean = replay.entering(layer, start=last).repeat(STEPS, 1, 1)
                    streams = torch.cat([streams, clean])
                (streams,) = advance([replay], [streams], [last], layer=layer, edits=[edit])
            logits = torch.nn.functional.linear(normalise(model, streams[:, -1]), unembedding, bias)
            chances = cap(model, logits).softmax(-1)[:, fact.token]
            slopes = torch.autograd.grad(chances.sum(), list(scaled.values()))
        for layer, slope in zip(scaled, slopes, strict=True):
            found[layer] = (own[layer] * slope[:, 0].mean(0)).cpu()
    return _strongest(found[:, None], [0], MOST, at=last)


def activation_size(fact: Known) -> list[Source]:
    """The largest activations, up or down."""
    return _strongest(fact.trace.activations.abs(), fact.positions, MOST)


def chance(fact: Known) -> list[Source]:
    """Neurons drawn at random."""
    config, draw = fact.trace.model.config, random.Random(fact.trace.prompt)
    return [
        (fp.NeuronId(draw.randrange(config.layers), draw.randrange(config.d_mlp)), draw.choice(fact.positions))
        for _ in range(MOST)
    ]  # fmt: skip


METHODS: dict[str, Callable[[Known], list[Source]]] = {
    "contrast with paths": contrast_with_paths,
    "mean removal": mean_removal,
    "direct push": direct_push,
    "gradient × difference": gradient_difference,
    "integrated gradients": integrated_gradients,
    "activation size": activation_size,
    "random": chance,
}


def _strongest(
    values: Tensor, positions: list[int], many: int, *, at: int | None = None
) -> list[Source]:
    """Rank neurons at positions by value, the largest first."""
    chosen = values[:, positions]
    order = chosen.ravel().argsort(descending=True, stable=True)[:many].tolist()
    neurons, places = chosen.shape[2], len(positions)
    found = []
    for place in order:
        layer, rest = divmod(place, neurons * places)
        position, neuron = divmod(rest, neurons)
        found.append((fp.NeuronId(layer, neuron), positions[position] if at is None else at))
    return found


def _decide(
    fact: Known, proposed: set[Source], *, contrast: fp.Contrast | None = None
) -> list[Source]:
    """Rank proposed neurons by their exact effects."""
    effects = ask(fact.trace, fact.token, contrast=contrast).remove_each(sorted(proposed))
    return sorted(effects, key=lambda one: (-effects[one], one[1], one[0]))[:MOST]

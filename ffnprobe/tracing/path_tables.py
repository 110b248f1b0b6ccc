"""Tables of paths: the parts that push hardest through attention, and which head carried them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.ordering import check_top, name_site, sort_sites, top_tokens
from ffnprobe.reading.tokens import gather
from ffnprobe.tracing.carrying import Readers, carry_back
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.paths import Paths

Source = Site  # where a path begins
_EMBEDDINGS = ("embedding", "position")  # the first two kinds


def table_top(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest of all neurons and embeddings, each at its position."""
    trace, embeddings = paths.trace, paths.owned[:, : len(_EMBEDDINGS)]
    values = torch.cat([*embeddings.unbind(dim=1), paths.neurons.ravel().double()])
    top = check_top(top, len(values), of="neurons and embeddings at positions")
    cells, first = top_tokens(values.abs()[None], top)[1][0].tolist(), embeddings.numel()
    sources = [name_site(cell - first, paths.neurons.shape) for cell in cells if cell >= first]
    acted = [float(trace.activations[n.layer, at, n.neuron]) for n, at in sources]
    neurons = zip(sources, acted, _carry_all(paths, sources), strict=True)
    rows = [next(neurons) if cell >= first else _read_embedding(paths, cell) for cell in cells]
    parts, activations, shares = zip(*rows, strict=True)
    columns = _name_strongest(shares)
    columns |= {"activation": list(activations), "push_through_attention": values[cells]}
    frame = list_neurons(trace.model, parts, columns, tokens=trace.tokens)
    return frame.astype({"layer": "Int64", "neuron": "Int64"})


def table_neurons(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest neurons, each at its position, with the tokens they stand for."""
    trace = paths.trace
    top = check_top(top, paths.neurons.numel(), of="neurons at positions")
    sources = sort_sites(paths.neurons.abs(), top)
    columns = _name_strongest(_carry_all(paths, sources))
    columns |= {"activation": trace.activations, "push_through_attention": paths.neurons}
    return list_neurons(trace.model, sources, columns, signs=trace.activations, tokens=trace.tokens)


def table_carriers(paths: "Paths", neuron: str | NeuronId, position: int) -> "pd.DataFrame":
    """Table every head above a neuron: how much it carried of its answer, step by step."""
    import pandas as pd

    name, index = paths.trace.model.find_neuron(neuron), paths.trace.at(position)
    heads = _carry_all(paths, [(name, index)])[0]
    rows = [
        (f"L{layer}H{head}", layer, head, step + 1, push)
        for step, by_layer in enumerate(heads.tolist())
        for layer, pushes in enumerate(by_layer)
        for head, push in enumerate(pushes)
        if layer > name.layer
    ]
    frame = pd.DataFrame(rows, columns=["part", "layer", "head", "step", "push"])
    return frame.sort_values("push", key=abs, ascending=False, kind="stable", ignore_index=True)


@torch.no_grad()
def carry_sources(
    trace: Trace, given: Readers, sources: Sequence[Source]
) -> Float[Tensor, "source layer head"]:
    """Return how much each head carried of each neuron's answer from its position, along readers."""
    model = trace.model
    answers = gather(model.answers, [name for name, _ in sources])
    positions = [position for _, position in sources]
    layers = torch.tensor([name.layer for name, _ in sources])
    amounts = torch.stack([trace.amounts[n.layer, j, n.neuron] for n, j in sources])
    found = torch.zeros(len(sources), model.config.layers, model.config.heads)
    for layer in range(model.config.layers):
        if not (layers < layer).any() or not given[layer + 1].any():
            continue
        carriers = carry_back(trace, layer, given)[:, positions]
        along = einsum(answers, carriers, "source d_model, head source d_model -> source head")
        found[:, layer] = along.cpu() * amounts[:, None] * (layers < layer)[:, None]
    return found


def _carry_all(
    paths: "Paths", sources: Sequence[Source]
) -> Float[Tensor, "source step layer head"]:
    if not sources:
        return torch.zeros(0, len(paths.steps), *paths.steps[0].moved.shape)
    return torch.stack(
        [carry_sources(paths.trace, step.given, sources) for step in paths.steps], dim=1
    )


def _read_embedding(paths: "Paths", cell: int) -> tuple[tuple[str, int], None, Tensor]:
    """Name an embedding at its position; it has no activation; and what each head carried of it."""
    kind, position = divmod(cell, len(paths.owned))
    shares = [step.shares[:, :, position, kind] for step in paths.steps]
    return (_EMBEDDINGS[kind], position), None, torch.stack(shares)


def _name_strongest(found: Iterable[Float[Tensor, "step layer head"]]) -> dict[str, Values]:
    """Name the heads that carried most in the direction of the sum, their steps, and how much."""
    rows = []
    for shares in found:
        toward = shares * (1.0 if shares.double().sum() >= 0 else -1.0)
        cell = int(rearrange(toward, "step layer head -> (step layer head)").argmax())
        step, rest = divmod(cell, shares[0].numel())
        layer, head = divmod(rest, shares.shape[-1])
        rows.append((f"L{layer}H{head}", step + 1, float(shares[step, layer, head])))
    columns = ("through", "step", "carried")
    return {name: list(each) for name, each in zip(columns, zip(*rows, strict=True), strict=True)}

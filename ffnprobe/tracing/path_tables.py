"""Tables of paths: the parts that push hardest through attention, and which head carried them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import check_top, top_tokens
from ffnprobe.reading.tokens import answer_tokens, gate_tokens, gather, question_tokens
from ffnprobe.tracing.carrying import Readers, carry_back
from ffnprobe.tracing.neuron_tables import TOKENS
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.paths import Paths

Source = tuple[NeuronId, int]  # a neuron, at a position
_EMBEDDINGS = ("embedding", "position")  # the first two kinds


def table_top(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest of all neurons and embeddings, each at its position."""
    import pandas as pd

    embedded = torch.cat([paths.owned[:, kind] for kind in range(len(_EMBEDDINGS))])
    values = torch.cat([embedded, paths.neurons.ravel().double()])
    top = check_top(top, len(values), of="neurons and embeddings at positions")
    cells = top_tokens(values.abs()[None], top)[1][0].tolist()
    length, first = paths.owned.shape[0], len(embedded)
    sources = [_source(paths, cell - first) for cell in cells if cell >= first]
    heads = iter(_carry_all(paths, sources))
    rows: list[tuple[object, ...]] = []
    for cell in cells:
        if cell < first:
            kind, position = divmod(cell, length)
            shares = torch.stack([step.shares[:, :, position, kind] for step in paths.steps])
            rows.append((_EMBEDDINGS[kind], None, None, position, None, *_strongest(shares)))
        else:
            name, position = _source(paths, cell - first)
            activation = float(paths.trace.activations[name.layer, position, name.neuron])
            rows.append(
                (str(name), name.layer, name.neuron, position, activation, *_strongest(next(heads)))
            )
    columns = ["name", "layer", "neuron", "position", "activation", "through", "step", "carried"]
    frame = pd.DataFrame(rows, columns=columns).astype({"layer": "Int64", "neuron": "Int64"})
    frame.insert(4, "token", [paths.trace.tokens[position] for position in frame.position])
    frame.insert(6, "push_through_attention", values[cells].numpy())
    return frame


def table_neurons(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest neurons, each at its position, with the tokens they stand for."""
    import pandas as pd

    top = check_top(top, paths.neurons.numel(), of="neurons at positions")
    cells = top_tokens(paths.neurons.ravel().abs()[None], top)[1][0].tolist()
    sources = [_source(paths, cell) for cell in cells]
    trace, names = paths.trace, [name for name, _ in sources]
    activations = [float(trace.activations[n.layer, j, n.neuron]) for n, j in sources]
    rows = [
        (str(n), n.layer, n.neuron, j, trace.tokens[j], activation,
         float(paths.neurons[n.layer, j, n.neuron]), *_strongest(heads))
        for (n, j), activation, heads in zip(
            sources, activations, _carry_all(paths, sources), strict=True
        )
    ]  # fmt: skip
    columns = ["name", "layer", "neuron", "position", "token", "activation"]
    more = ["push_through_attention", "through", "step", "carried"]
    frame = pd.DataFrame(rows, columns=[*columns, *more])
    if (opened := gate_tokens(trace.model, names, TOKENS)) is not None:
        frame["gate_tokens"] = [" ".join(row) for row in opened]
    asked = question_tokens(trace.model, names, TOKENS)
    answered = answer_tokens(trace.model, names, TOKENS, signs=activations)
    frame["question_tokens"] = [" ".join(row) for row in asked]
    frame["answer_tokens"] = [" ".join(row) for row in answered]
    return frame


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


def _source(paths: "Paths", cell: int) -> Source:
    """Turn an index into the flattened `[layer pos neuron]` into a neuron and a position."""
    _, length, neurons = paths.neurons.shape
    rest, neuron = divmod(cell, neurons)
    layer, position = divmod(rest, length)
    return NeuronId(layer, neuron), position


def _strongest(shares: Float[Tensor, "step layer head"]) -> tuple[str, int, float]:
    """Name the head that carried most in the direction of the sum, its step, and how much."""
    toward = shares * (1.0 if shares.double().sum() >= 0 else -1.0)
    cell = int(rearrange(toward, "step layer head -> (step layer head)").argmax())
    step, rest = divmod(cell, shares[0].numel())
    layer, head = divmod(rest, shares.shape[-1])
    return f"L{layer}H{head}", step + 1, float(shares[step, layer, head])

"""Tables of a circuit: its neurons, all nodes, edges, and the account of every score."""

from typing import TYPE_CHECKING

import torch

from ffnprobe.circuits.edges import Target
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.circuits.circuit import Circuit

ANSWER, BIASES, REST = "answer", "biases", "rest"


def name_target(target: Target) -> str:
    """Name a target as the node it is."""
    return ANSWER if target.node is None else target.node.name


def table_neurons(circuit: "Circuit") -> "pd.DataFrame":
    """Table the kept neurons: what they did, what they are worth, the tokens they stand for."""
    trace, first = circuit.trace, len(circuit.sources.nodes) - len(circuit.kept)
    columns = {
        "activation": trace.activations,
        "removed": circuit.question.removal.on(trace).expand_as(trace.activations),
        "influence": circuit.worth[first:],
        "inside": circuit.flows.sum(dim=0)[first:],
    }
    return list_neurons(
        trace.model, circuit.kept, columns, signs=trace.activations, tokens=trace.tokens
    )


def table_nodes(circuit: "Circuit") -> "pd.DataFrame":
    """Table every node once: words first, then neurons in layer order, then the answer."""
    import pandas as pd

    tokens, flows = circuit.trace.tokens, circuit.flows.sum(dim=0).tolist()
    listed = zip(circuit.sources.nodes, circuit.worth.tolist(), flows, strict=True)
    rows: list[tuple[object, ...]] = [
        (
            node.name, node.kind, str(node.neuron_id) if node.kind == "neuron" else None,
            node.layer if node.kind == "neuron" else None,
            node.neuron if node.kind == "neuron" else None,
            node.position, tokens[node.position], worth, inside,
        )
        for node, worth, inside in sorted(listed, key=lambda row: (row[0].layer, row[0].position))
    ]  # fmt: skip
    rows += [(name, name, None, None, None, None, None, None, None) for name in (BIASES, REST)]
    last = circuit.question.pushes.pieces[-1].position
    shown = circuit.provenance.answer
    rows.append((ANSWER, ANSWER, None, None, None, last, shown, circuit.logit, None))
    columns = [
        "node", "kind", "name", "layer", "neuron", "position", "token", "influence", "inside",
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=columns)
    whole = dict.fromkeys(("layer", "neuron", "position"), "Int64")
    return frame.astype({**whole, "influence": float, "inside": float})


def table_edges(circuit: "Circuit", top: int | None) -> "pd.DataFrame":
    """Table edges between kept nodes, by what they are worth to the answer; ties by name."""
    import pandas as pd

    account, heads = circuit.account, circuit.trace.model.config.heads
    rows = []
    for row, column in account.drives.nonzero().tolist():
        target, head = circuit.targets[row], int(account.head[row, column])
        carried = float(account.carried[row, column])
        rows.append(
            (
                circuit.sources.nodes[column].name, name_target(target), target.asks,
                float(account.drives[row, column]), float(account.direct[row, column]),
                f"L{head // heads}H{head % heads}" if head >= 0 and carried else "", carried,
                float(circuit.flows[row, column]),
            )
        )  # fmt: skip
    columns = ["source", "target", "asks", "drive", "direct", "through", "carried", "influence"]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.sort_values(
        "influence", key=abs, ascending=False, kind="stable", ignore_index=True
    )
    if top is None:
        return frame
    return frame.head(check_top(top, len(frame), of="edges"))


def table_accounts(circuit: "Circuit") -> "pd.DataFrame":
    """Table what each score adds up from: neurons + embeddings + biases + rest = score."""
    import pandas as pd

    account = circuit.account
    is_neuron = torch.tensor([node.kind == "neuron" for node in circuit.sources.nodes])
    neurons = account.drives[:, is_neuron].double().sum(dim=-1).tolist()
    words = account.drives[:, ~is_neuron].double().sum(dim=-1).tolist()
    rows = [
        (name_target(target), target.asks, target.measured, *parts)
        for target, *parts in zip(
            circuit.targets, neurons, words, account.biases.tolist(), account.rest.tolist(),
            strict=True,
        )
    ]  # fmt: skip
    columns = ["target", "asks", "score", "neurons", "embeddings", "biases", "rest"]
    return pd.DataFrame(rows, columns=columns)

"""A circuit as a graph for other tools: GraphML, and the JSON of circuit-tracer's graphs.

    .graphml   every node and edge with its numbers, for networkx, Gephi, yEd, igraph
    .json      circuit-tracer's public schema, for its frontend: neurons are its features

In circuit-tracer's terms a link's weight is what the source added to the target's activation (its drive,
times how far the activation follows), a node's influence the share of all influence that it and the
stronger ones have, which is what the frontend's slider cuts by. Rest is one error node. Groups named by hand
are its supernodes.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import torch
from pandas.api.types import is_float_dtype, is_integer_dtype

from ffnprobe.arguments import verb
from ffnprobe.circuits.circuit import Circuit
from ffnprobe.circuits.graph import ANSWER, BIASES, REST
from ffnprobe.errors import OptionRefused
from ffnprobe.files import atomic_write
from ffnprobe.layout import is_missing
from ffnprobe.views.saving import check_target, encode_text

SUFFIXES = (".graphml", ".json")
# What XML cannot hold: control characters, and halves of characters.
_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff]")
# The columns that name a node and an edge.
_NAMED = {"node": {"id": "node"}, "edge": {"source": "source", "target": "target"}}
_SPACE = "http://graphml.graphdrawing.org/xmlns"
Groups = Mapping[str, Sequence[str]]


@verb
def save_graph(circuit: Circuit, path: str | Path, *, groups: Groups | None = None) -> None:
    """Write a circuit as .graphml, or as .json for circuit-tracer's frontend.

    `groups` are nodes put together by hand, under a name: `{"plural": ["L8N952@1", "L12N1441@1"]}`.

    >>> import ffnprobe as fp, tempfile
    >>> circuit = fp.circuit(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", keep=5)
    >>> fp.save_graph(circuit, tempfile.mkdtemp() + "/jordan.graphml")
    """
    target, groups = Path(path), groups or {}
    check_target(target, SUFFIXES)
    names = {node.name for node in circuit.sources.nodes}
    for group, members in groups.items():
        if lacking := [name for name in members if name not in names]:
            why = f'"{lacking[0]}", in the group "{group}", is not a node of this circuit.'
            raise OptionRefused(why, remedy="nodes() names them: L3N12@5, embedding@5")
    is_graphml = target.suffix.lower() == ".graphml"
    text = to_graphml(circuit, groups) if is_graphml else to_tracer(circuit, target.stem, groups)
    atomic_write(target, encode_text(text))


def to_graphml(circuit: Circuit, groups: Groups) -> str:
    nodes, edges, accounts = circuit.nodes(), circuit.edges(), circuit.accounts()
    # With the edges of the biases and of the rest every score adds up.
    own = accounts[["target", "asks"]]
    rest = [own.assign(source=part, drive=accounts[part]) for part in (BIASES, REST)]
    joined = pd.concat([edges, *(rows[rows.drive != 0] for rows in rest)], ignore_index=True)
    inside = {name: group for group, names in groups.items() for name in names}
    nodes["group"] = [inside.get(name) for name in nodes.node]
    tables = {"node": nodes, "edge": joined[edges.columns]}
    root = ElementTree.Element("graphml", xmlns=_SPACE)
    for of, table in tables.items():
        for column, dtype in table.dtypes.items():
            kind = "double" if is_float_dtype(dtype) else "string"
            kind = "long" if is_integer_dtype(dtype) else kind
            key = {"id": f"{of}_{column}", "for": of, "attr.name": str(column), "attr.type": kind}
            ElementTree.SubElement(root, "key", key)
    graph = ElementTree.SubElement(root, "graph", id="circuit", edgedefault="directed")
    ElementTree.SubElement(graph, "desc").text = f"{circuit.title}; {circuit.caption}"
    for of, table in tables.items():
        for row in table.to_dict("records"):
            named = {name: row[column] for name, column in _NAMED[of].items()}
            element = ElementTree.SubElement(graph, of, named)
            for column, value in row.items():
                if not is_missing(value):
                    data = ElementTree.SubElement(element, "data", key=f"{of}_{column}")
                    data.text = _UNFIT.sub("\ufffd", str(value))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def to_tracer(circuit: Circuit, slug: str, groups: Groups) -> str:
    trace, first = circuit.trace, circuit.question.pushes.pieces[0]
    top, last = trace.model.config.layers + 1, len(trace) - 1
    ids = {ANSWER: f"{top}_{first.answer}_{last}", REST: f"0_-1_{last}"}
    for node in circuit.sources.nodes:
        # Position embeddings are told from the tokens' by a number no token has.
        token = trace.ids[node.position] if node.kind == "embedding" else -1
        own = f"{node.layer}_{node.neuron}" if node.kind == "neuron" else f"E_{token}"
        ids[node.name] = f"{own}_{node.position}"
    chance = float(trace.log_probabilities(first.position)[first.answer].exp())
    shown = f'Output "{circuit.provenance.answer}" (p={chance:.3f})'
    rest = "rest: all neurons that are not kept"
    body = {
        "metadata": {
            "slug": slug, "scan": f"ffnprobe-{trace.model.name}", "transcoder_list": [],
            "prompt_tokens": list(trace.tokens), "prompt": trace.prompt, "node_threshold": 1.0,
            "schema_version": 1,
        },
        "qParams": {
            "pinnedIds": [], "linkType": "both", "clickedId": "", "sg_pos": "",
            "supernodes": [[group, *(ids[n] for n in members)] for group, members in groups.items()],
        },
        "nodes": [
            *_tracer_nodes(circuit, ids),
            _tracer_node(ids[ANSWER], top, first.answer, last, "logit", 0.0, shown, chance=chance),
            _tracer_node(ids[REST], 0, -1, last, "mlp reconstruction error", 1.0, rest),
        ],
        "links": _tracer_links(circuit, ids),
    }  # fmt: skip
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def _tracer_nodes(circuit: Circuit, ids: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    trace, nodes, worth = circuit.trace, circuit.sources.nodes, circuit.worth.abs()
    order = worth.argsort(descending=True)
    shares = (worth[order].cumsum(0) / worth.sum().clamp(min=1e-30))[order.argsort()].tolist()
    neurons = [node.name for node in nodes if node.kind == "neuron"]
    labels = dict(zip(neurons, circuit.table.answer_tokens, strict=True)) if neurons else {}
    for node, share in zip(nodes, shares, strict=True):
        name, at = ids[node.name], node.position
        if node.kind != "neuron":
            shown = f"{node.kind} of {trace.tokens[at]}"
            yield _tracer_node(name, "E", at, at, "embedding", share, shown)
            continue
        # A layer and a neuron are one number by Cantor's pairing, as in circuit-tracer.
        both = node.layer + node.neuron
        feature, kind = both * (both + 1) // 2 + node.neuron, "cross layer transcoder"
        act = float(trace.activations[node.layer, at, node.neuron])
        shown = f"{node.neuron_id}: {labels[node.name]}"
        yield _tracer_node(name, node.layer, feature, at, kind, share, shown, activation=act)


def _tracer_node(
    name: str, layer: int | str, feature: int, position: int, kind: str, influence: float, shown: str, *,
    chance: float = 0.0, activation: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "node_id": name, "layer": str(layer), "feature": feature, "ctx_idx": position,
        "jsNodeId": f"{name}-0", "run_idx": 0, "feature_type": kind, "token_prob": chance,
        "is_target_logit": kind == "logit", "reverse_ctx_idx": 0, "influence": influence,
        "clerp": shown, "activation": activation,
    }  # fmt: skip


def _tracer_links(circuit: Circuit, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    """Add up what each source added to each target's activation, by its question and its gate."""
    weights = defaultdict[tuple[str, str], float](float)
    drives = torch.cat([circuit.account.drives, circuit.account.rest[:, None]], dim=1).double()
    added = (drives * circuit.activation_slopes.double()[:, None]).tolist()
    sources = [ids[name] for name in (*(node.name for node in circuit.sources.nodes), REST)]
    for target, row in zip(circuit.targets, added, strict=True):
        for source, weight in zip(sources, row, strict=True):
            if weight:
                weights[source, ids[target.name]] += weight
    return [{"source": s, "target": t, "weight": weight} for (s, t), weight in weights.items()]

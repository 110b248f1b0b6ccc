"""The page of a circuit: the graph, one node of it, the answer without some, and groups made by hand.

Everything chosen is in the address: the node, the nodes removed, the groups. So a link shows it again.
"""

import pandas as pd
from dash import dcc, html

from ffnprobe.circuits.circuit import Circuit
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.recipes import write_recipe
from ffnprobe.tracing.attention import Source
from ffnprobe.views.explorer import forms
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.components import (
    Component,
    Viewport,
    alert,
    field,
    figure,
    link,
    neuron_link,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import Session
from ffnprobe.views.figures import plot

KEEP, MOST = 40, 300
EDGES = 12
HIDDEN = ["layer", "neuron", "gate_tokens"]


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show the circuit of a prompt's answer, or ask for a prompt."""
    heading = html.H1("From the words to the answer")
    if not address.text("prompt"):
        return html.Div([heading, forms.prompt_form(session, address, None)])
    try:
        form = forms.prompt_form(session, address, session.trace(address))
        circuit = _find(session, address)
        parts = [
            _graph(circuit, viewport),
            _node(circuit, address),
            _without(circuit, address),
            _groups(circuit, address),
            _neurons(circuit, address),
        ]
    except FfnProbeError as error:
        form = forms.prompt_form(session, address, None)
        return html.Div([heading, form, alert(error)])
    return html.Div([html.H1(circuit.title), form, *parts, bar()])


def _find(session: Session, address: Address) -> Circuit:
    keep = int(address.number("keep", KEEP))
    if not 1 <= keep <= MOST:
        raise OptionRefused(
            f"keep = {keep}: the explorer keeps 1 to {MOST}.", remedy=f"keep={KEEP}"
        )
    return session.circuit(session.question(address), keep)


def _graph(circuit: Circuit, viewport: Viewport) -> Component:
    said = (
        "Tokens below, layers upward, the answer on top. A line is what one node is worth to the answer "
        "through the next. Click a neuron to see it."
    )
    return section("The graph", words(said), figure(plot(circuit, "graph"), viewport, name="graph"))


def _node(circuit: Circuit, address: Address) -> Component:
    """Show the node chosen: what it did, its edges in and out, and what the answer loses without it."""
    chosen = address.text("node")
    if not chosen:
        return section(
            "One node", words("Click a neuron in the graph or a name below.", is_soft=True)
        )
    name, position = _source(circuit, chosen)
    row = circuit.table[
        (circuit.table.name == str(name)) & (circuit.table.position == position)
    ].iloc[0]
    (lost,) = circuit.question.remove_groups([[(name, position)]])
    node = f"{name}@{position}"
    said = (
        f" at {row.token} (position {position}): activation {row.activation:.3f}, {row.removed:.3f} when removed. "
        f"Influence {row.influence:+.3f} logits; removed, with the model run again, the answer loses {lost:+.3f}. "
        f"Asked by {row.question_tokens}; writes {row.answer_tokens}."
    )
    removed = address.texts("without")
    toggle = (
        link(
            "put it back",
            address.listing("without", [o for o in removed if o != node]),
            is_near=True,
        )
        if node in removed
        else link("remove it", address.listing("without", [*removed, node]), is_near=True)
    )
    edges = circuit.edges()
    box = dcc.Input(id="group", value="", placeholder="plural", autoComplete="off")
    return section(
        f"One node: {node}",
        html.P([neuron_link(address, str(name)), said]),
        html.P([toggle]),
        html.Div([field("Put it in a group", box), html.Button("Add", id="join")], className="row"),
        html.H3("What it was driven by"),
        _edges(circuit, address, edges[edges.target == node], "source"),
        html.H3("What it drove"),
        _edges(circuit, address, edges[edges.source == node], "target"),
    )


def _edges(circuit: Circuit, address: Address, edges: pd.DataFrame, end: str) -> Component:
    columns = [end, "asks", "drive", "direct", "through", "carried", "influence"]
    shown = edges[columns].head(EDGES)
    links = [_link(circuit, address, name) for name in shown[end]]
    return table(shown, caption=f"its strongest edges, by {end}", links={end: links})


def _link(circuit: Circuit, address: Address, name: str) -> Component:
    """Link to a node, if it is a neuron; a word is shown as its token."""
    kind, _, position = name.partition("@")
    if position and kind in ("embedding", "position"):
        return f"{kind} of {circuit.trace.tokens[int(position)]}"
    return link(name, address.here(node=name), is_near=True) if position else name


def _without(circuit: Circuit, address: Address) -> Component:
    names = address.texts("without")
    if not names:
        return html.Div()
    (lost,) = circuit.question.remove_groups([[_source(circuit, name) for name in names]])
    said = (
        f"Without {', '.join(names)} the answer is at {circuit.logit - lost:.3f} logits, not {circuit.logit:.3f}: "
        f"it loses {lost:+.3f}."
    )
    back = link("put all back", address.listing("without", []), is_near=True)
    return section("Without some", html.P(html.Output(said)), html.P(back))


def _groups(circuit: Circuit, address: Address) -> Component:
    """Add up each group: its influence, and what the answer loses without all of it."""
    groups = read_groups(circuit, address)
    if not groups:
        return html.Div()
    worth = {f"{n}@{position}": value for (n, position), value in zip(circuit.kept, circuit.worth[-len(circuit.kept) :].tolist(), strict=True)}  # fmt: skip
    lost = circuit.question.remove_groups(list(groups.values()))
    listed = [[f"{name}@{position}" for name, position in own] for own in groups.values()]
    frame = pd.DataFrame(
        {
            "group": list(groups),
            "neurons": [" ".join(own) for own in listed],
            "influence": [sum(worth[name] for name in own) for own in listed],
            "effect": lost,
        }
    )
    said = "effect: what the answer loses without all of the group, the model run again, in logits."
    undo = link("remove the groups", address.listing("group", []), is_near=True)
    return section(
        "Groups",
        table(frame, caption="groups made by hand"),
        words(said, is_soft=True),
        html.P(undo),
    )


def read_groups(circuit: Circuit, address: Address) -> dict[str, list[Source]]:
    """Read the groups of an address: `NAME:L3N12@5,L4N7@5`, one an option."""
    found: dict[str, list[Source]] = {}
    for text in address.texts("group"):
        name, _, nodes = text.partition(":")
        found.setdefault(name, []).extend(_source(circuit, node) for node in nodes.split(","))
    return {name: list(dict.fromkeys(own)) for name, own in found.items()}


def _source(circuit: Circuit, node: str) -> Source:
    """Find a kept neuron by its name in the graph."""
    for name, position in circuit.kept:
        if node == f"{name}@{position}":
            return name, position
    raise OptionRefused(
        f'"{node}" is not a neuron of this circuit.', remedy="a name of the table: L3N12@5"
    )


def _neurons(circuit: Circuit, address: Address) -> Component:
    shown = circuit.table
    links = [
        link(str(name), address.here(node=f"{name}@{position}"), is_near=True)
        for name, position in circuit.kept
    ]
    said = (
        f"{len(circuit.targets):,} scores add up within {circuit.remainder:.1e}. {circuit.caption}."
    )
    shown = shown.drop(columns=HIDDEN, errors="ignore")
    return section(
        "Its neurons", table(shown, caption="the kept neurons", links={"name": links}),
        words(said, is_soft=True),
    )  # fmt: skip


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the circuit."""
    circuit = _find(session, address)
    return Export("circuit", circuit, circuit.tables(), write_recipe(circuit, page=True))

"""The page of a circuit: the graph, one node of it, the answer without some, and groups made by hand.

Everything chosen is in the address: the node, the nodes removed, the groups. So a link shows it again.
"""

import pandas as pd
from dash import dcc, html

from ffnprobe.circuits.circuit import Circuit
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.names import Site
from ffnprobe.recipes import write_recipe
from ffnprobe.views.explorer import components as ui
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.components import Component, Viewport
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import Session
from ffnprobe.views.figures import plot

KEEP, MOST = 40, 300
EDGES = 12
HIDDEN = ["layer", "neuron", "gate_tokens"]
ABOUT = (
    "Tokens below, layers upward, the answer on top. A line is what one node is worth to the answer "
    "through the next. Click a neuron to see it."
)


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    heading = "From the words to the answer"
    if not address.text("prompt"):
        return ui.page(heading, ui.prompt_form(session, address, None))
    try:
        form = ui.prompt_form(session, address, session.trace(address))
        circuit = _find(session, address)
        sections = (_show_node, _show_without, _show_groups, _list_neurons)
        graph = ui.figure(plot(circuit, "graph"), viewport, name="graph")
        parts = [ui.section("The graph", ui.words(ABOUT), graph)]
        parts += [each(circuit, address) for each in sections]
    except FfnProbeError as error:
        return ui.page(heading, ui.prompt_form(session, address, None), ui.alert(error))
    return ui.page(circuit.title, form, *parts, bar())


def _find(session: Session, address: Address) -> Circuit:
    keep = int(address.number("keep", KEEP))
    if not 1 <= keep <= MOST:
        why = f"keep = {keep}: the explorer keeps 1 to {MOST}."
        raise OptionRefused(why, remedy=f"keep={KEEP}")
    return session.circuit(session.question(address), keep)


def _show_node(circuit: Circuit, address: Address) -> Component:
    """Show the node chosen: what it did, its edges in and out, and what the answer loses without it."""
    node = address.text("node")
    if not node:
        ask = "Click a neuron in the graph or a name below."
        return ui.section("One node", ui.words(ask, is_soft=True))
    site = _find_site(circuit, node)
    row = circuit.table.iloc[circuit.kept.index(site)]
    (effect,) = circuit.question.remove_groups([[site]])
    about = (
        f" at {row.token} (position {site[1]}): activation {row.activation:.3f}, {row.removed:.3f} when removed. "
        f"Influence {row.influence:+.3f} logits; removed, with the model run again, the answer loses {effect:+.3f}. "
        f"Asked by {row.question_tokens}; writes {row.answer_tokens}."
    )
    removed = address.texts("without")
    if node in removed:
        toggle, removed = "put it back", [other for other in removed if other != node]
    else:
        toggle, removed = "remove it", [*removed, node]
    edges = circuit.edges()
    box = dcc.Input(id="group", value="", placeholder="plural", autoComplete="off")
    join = [ui.field("Put it in a group", box), html.Button("Add", id="join")]
    return ui.section(
        f"One node: {node}",
        html.P([ui.link_neuron(address, str(site[0])), about]),
        html.P([ui.link(toggle, address.here(without=removed), is_near=True)]),
        html.Div(join, className="row"),
        html.H3("What it was driven by"),
        _list_edges(circuit, address, edges[edges.target == node], "source"),
        html.H3("What it drove"),
        _list_edges(circuit, address, edges[edges.source == node], "target"),
    )


def _list_edges(circuit: Circuit, address: Address, edges: pd.DataFrame, end: str) -> Component:
    columns = [end, "asks", "drive", "direct", "through", "carried", "influence"]
    shown = edges[columns].head(EDGES)
    links = [_link_node(circuit, address, name) for name in shown[end]]
    return ui.table(shown, caption=f"its strongest edges, by {end}", links={end: links})


def _link_node(circuit: Circuit, address: Address, name: str) -> Component:
    """Link to a node, if it is a neuron; a word is shown as its token."""
    kind, _, position = name.partition("@")
    if position and kind in ("embedding", "position"):
        return f"{kind} of {circuit.trace.tokens[int(position)]}"
    return ui.link(name, address.here(node=name), is_near=True) if position else name


def _show_without(circuit: Circuit, address: Address) -> Component:
    names = address.texts("without")
    if not names:
        return html.Div()
    (effect,) = circuit.question.remove_groups([[_find_site(circuit, name) for name in names]])
    result = (
        f"Without {', '.join(names)} the answer is at {circuit.logit - effect:.3f} logits, not {circuit.logit:.3f}: "
        f"it loses {effect:+.3f}."
    )
    back = ui.link("put all back", address.here(without=None), is_near=True)
    return ui.section("Without some", html.P(html.Output(result)), html.P(back))


def _show_groups(circuit: Circuit, address: Address) -> Component:
    """Add up each group: its influence, and what the answer loses without all of it."""
    groups = read_groups(circuit, address)
    if not groups:
        return html.Div()
    influence = dict(zip(circuit.kept, circuit.worth[-len(circuit.kept) :].tolist(), strict=True))
    sets = list(groups.values())
    frame = pd.DataFrame({"group": list(groups)})
    frame["neurons"] = [" ".join(map(_name_site, sites)) for sites in sets]
    frame["influence"] = [sum(influence[site] for site in sites) for sites in sets]
    frame["effect"] = circuit.question.remove_groups(sets)
    about = (
        "effect: what the answer loses without all of the group, the model run again, in logits."
    )
    undo = ui.link("remove the groups", address.here(group=None), is_near=True)
    listed = ui.table(frame, caption="groups made by hand")
    return ui.section("Groups", listed, ui.words(about, is_soft=True), html.P(undo))


def read_groups(circuit: Circuit, address: Address) -> dict[str, list[Site]]:
    """Read the groups of an address: `NAME:L3N12@5,L4N7@5`, one an option."""
    groups: dict[str, list[Site]] = {}
    for text in address.texts("group"):
        name, _, nodes = text.partition(":")
        groups.setdefault(name, []).extend(_find_site(circuit, node) for node in nodes.split(","))
    return {name: list(dict.fromkeys(sites)) for name, sites in groups.items()}


def _name_site(site: Site) -> str:
    return f"{site[0]}@{site[1]}"


def _find_site(circuit: Circuit, node: str) -> Site:
    for site in circuit.kept:
        if node == _name_site(site):
            return site
    why = f'"{node}" is not a neuron of this circuit.'
    raise OptionRefused(why, remedy="a name of the table: L3N12@5")


def _list_neurons(circuit: Circuit, address: Address) -> Component:
    links = [
        ui.link(str(site[0]), address.here(node=_name_site(site)), is_near=True)
        for site in circuit.kept
    ]
    note = (
        f"{len(circuit.targets):,} scores add up within {circuit.remainder:.1e}. {circuit.caption}."
    )
    shown = circuit.table.drop(columns=HIDDEN, errors="ignore")
    listed = ui.table(shown, caption="the kept neurons", links={"name": links})
    return ui.section("Its neurons", listed, ui.words(note, is_soft=True))


def gather(session: Session, address: Address, live: Live) -> Export:
    circuit = _find(session, address)
    return Export("circuit", circuit, circuit.tables(), write_recipe(circuit, page=True))

"""The page of a circuit: its graph, a node, the answer without some, groups; all of it in the address."""

from urllib.parse import urlencode

import pytest

import ffnprobe as fp
from ffnprobe.views.explorer.addresses import read_address
from ffnprobe.views.explorer.circuit_page import KEEP, gather, read_groups
from ffnprobe.views.explorer.exports import Live
from tests.conftest import JORDAN
from tests.explorer.client import Client

ASKED = {"prompt": JORDAN, "answer": " basketball", "versus": " golf",
         "contrast": "Tiger Woods plays the sport of"}  # fmt: skip


@pytest.fixture(scope="module")
def circuit(pocket):
    return fp.circuit(
        pocket, JORDAN, " basketball", versus=" golf", contrast=ASKED["contrast"], keep=KEEP
    )


def open_page(explorer, **more):
    return Client(explorer).page("/circuit", f"?{urlencode(ASKED | more, doseq=True)}")


def name(source):
    return f"{source[0]}@{source[1]}"


def test_the_page_shows_the_graph_and_the_neurons(explorer, circuit):
    text = open_page(explorer)
    assert f"{KEEP} neurons" in text
    assert all(str(source[0]) in text for source in circuit.kept)
    assert "is worth most to" in text


def test_a_node_has_its_edges_and_what_the_answer_loses_without_it(explorer, circuit):
    first = circuit.kept[0]
    (lost,) = circuit.question.remove_groups([[first]])
    effect = fp.ablate(
        circuit.trace, " basketball", versus=" golf", contrast=circuit.question.contrast,
        together=[str(first[0])], position=first[1],
    )  # fmt: skip
    assert lost == pytest.approx(float(effect.values[0]), abs=1e-4)
    text = open_page(explorer, node=name(first))
    assert f"One node: {name(first)}" in text
    assert f"the answer loses {lost:+.3f}" in text
    assert "What it was driven by" in text
    assert f"without={name(first).replace('@', '%40')}" in text


def test_some_can_be_removed_together(explorer, circuit):
    two = circuit.kept[:2]
    (lost,) = circuit.question.remove_groups([two])
    text = open_page(explorer, without=[name(one) for one in two])
    assert f"it loses {lost:+.3f}" in text


def test_groups_are_kept_in_the_address_and_added_up(explorer, circuit):
    two = circuit.kept[:2]
    group = f"mine:{name(two[0])},{name(two[1])}"
    text = open_page(explorer, group=[group, f"mine:{name(two[0])}"])
    assert "groups made by hand" in text
    assert f"{name(two[0])} {name(two[1])}" in text
    address = read_address("/circuit", f"?{urlencode({'group': group})}")
    assert read_groups(circuit, address) == {"mine": list(two)}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"node": "L99N1@0"}, "is not a neuron of this circuit"),
        ({"group": "a:nothing"}, "is not a neuron of this circuit"),
        ({"keep": "100000"}, "the explorer keeps 1 to"),
    ],
)
def test_mistakes_are_said(explorer, more, words):
    assert words in open_page(explorer, **more)


def test_it_is_exported_with_a_recipe(session, circuit):
    export = gather(session, read_address("/circuit", f"?{urlencode(ASKED)}"), Live())
    assert list(export.tables) == ["neurons", "nodes", "edges", "accounts"]
    assert f"--keep={KEEP}" in export.recipe.command
    made = {}
    exec(export.recipe.python.rpartition("\n")[0], made)
    assert made["found"].table.name.tolist() == circuit.table.name.tolist()


@pytest.mark.browser
def test_a_click_on_a_neuron_opens_it_and_a_group_is_named(browser, explorer, circuit):
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(explorer)
    page.wait_for_selector("#page h1")
    page.goto(f"{explorer.partition('?')[0]}circuit?{urlencode(ASKED)}")
    page.wait_for_selector("#graph .scatterlayer")
    page.locator("#graph").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    x, y, node = page.evaluate(
        """() => {
            const plot = document.querySelector('#graph .js-plotly-plot');
            const nodes = plot.data.find((one) => one.customdata);
            const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.d2p(nodes.x[0]),
                    box.y + yaxis._offset + yaxis.d2p(nodes.y[0]), nodes.customdata[0]];
        }"""
    )
    assert node == name(circuit.kept[0])
    page.mouse.move(x, y)
    page.wait_for_timeout(300)
    page.mouse.click(x, y)
    page.wait_for_selector(f"text=One node: {node}")
    page.get_by_role("link", name="remove it").click()
    page.wait_for_selector("text=Without some")
    page.fill("#group", "sport")
    page.get_by_role("button", name="Add").click()
    page.wait_for_selector("text=groups made by hand")
    assert "group=sport%3A" in page.url
    page.reload()
    page.wait_for_selector("text=groups made by hand")

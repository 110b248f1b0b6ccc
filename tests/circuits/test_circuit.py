"""Circuits: what is planted is found whole and nothing else; options, tables, errors by their words."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.circuits import recovery
from ffnprobe.circuits.graph import choose_kept
from ffnprobe.circuits.influence import ActivationSlopes
from ffnprobe.models.step import ACTIVATION_FUNCTIONS
from tests.circuits.conftest import ANSWER, CONTRAST, FIRST, MOVER, PROMPT, RIVAL, SECOND

PLACE, LAST = 2, 4
ONE, TWO = f"L{FIRST[0]}N{FIRST[1]}@{PLACE}", f"L{SECOND[0]}N{SECOND[1]}@{LAST}"


@pytest.fixture(scope="module")
def circuit(planted):
    return fp.circuit(planted, PROMPT, ANSWER, versus=RIVAL, contrast=CONTRAST, test=True)


def test_a_planted_circuit_is_found_whole_and_nothing_else(circuit):
    assert circuit.trace.tokens[PLACE] == "␣cat"
    assert len(circuit.trace) == LAST + 1
    gaps = circuit.trace.activations - circuit.question.replacement_on(circuit.trace)
    assert (gaps.abs() > 0.1).sum() > 30  # many neurons differ; two matter
    kept = {f"{name}@{place}" for name, place in circuit.kept}
    assert kept == {ONE, TWO}
    edges = circuit.edges()
    strong = edges[edges.influence.abs() > 1e-6 * edges.influence.abs().max()]
    assert {*zip(strong.source, strong.target, strict=True)} == {
        (f"embedding@{PLACE}", ONE), (ONE, TWO), (TWO, "answer"),
    }  # fmt: skip
    moved = edges[(edges.source == ONE) & (edges.target == TWO)].iloc[0]
    assert moved.through == "L{}H{}".format(*MOVER)
    assert moved.carried == pytest.approx(moved.drive, rel=1e-5)
    assert moved.direct == 0


def test_a_planted_circuit_is_faithful_and_complete(circuit):
    table = circuit.recovery.table
    own = table[table.ranking == "influence"]
    assert own.neurons.tolist() == [2] * len(own)
    assert own.recovered.tolist() == pytest.approx([1.0] * len(own), abs=0.02)
    assert own.gone.tolist() == pytest.approx([1.0] * len(own), abs=0.02)
    random = table[table.ranking == "random"]
    assert random.recovered.abs().max() < 0.05
    assert random.gone.abs().max() < 0.05


def test_influence_adds_up_along_a_chain(circuit):
    """In a chain every link is worth about the same: what the answer owes to the subject."""
    table = circuit.table.set_index("name")
    first, second = (table.influence[name.split("@")[0]] for name in (ONE, TWO))
    worth = circuit.recovery.all_neurons - circuit.recovery.no_neurons
    # Scales are held in influence, and not in a replay.
    assert first == pytest.approx(second, rel=0.2)
    assert second == pytest.approx(worth, rel=0.2)
    assert table.inside.tolist() == pytest.approx(table.influence.tolist(), rel=1e-4)


def test_ties_are_broken_by_name():
    influence = torch.zeros(2, 3, 4)
    for layer, place, neuron in ((1, 0, 2), (0, 2, 3), (0, 1, 3), (0, 0, 1)):
        influence[layer, place, neuron] = -1.0
    influence[1, 1, 1] = 0.5
    kept = [f"{name}@{place}" for name, place in choose_kept(influence, 9)]
    assert kept == ["L0N1@0", "L0N3@1", "L0N3@2", "L1N2@0", "L1N1@1"]
    toward = choose_kept(influence, 9, sign="toward")
    assert [f"{name}@{place}" for name, place in toward] == ["L1N1@1"]


def test_rules_are_their_formulas(planted):
    here, there = fp.run(planted, PROMPT), fp.run(planted, CONTRAST)
    contrast = fp.contrast_with(here, ANSWER, [there], answers=[RIVAL])
    f = ACTIVATION_FUNCTIONS[planted.config.activation]
    for layer in range(planted.config.layers):
        h, other = here.scores[layer].double(), there.scores[layer].double()
        slopes, gate = ActivationSlopes(here, "rescale", contrast).of(layer)
        far = (h - other).abs() > 0.1
        exact = ((f(h) - f(other)) / (h - other))[far]
        assert gate is None
        torch.testing.assert_close(slopes.double()[far], exact, atol=1e-4, rtol=1e-3)
        chords = ActivationSlopes(here, "relp").of(layer)[0]
        torch.testing.assert_close(
            chords * here.scores[layer], here.activations[layer], atol=1e-5, rtol=1e-4
        )
        step = 1e-4
        tangent = (f(h + step) - f(h - step)) / (2 * step)
        torch.testing.assert_close(
            ActivationSlopes(here, "gradient").of(layer)[0].double(), tangent, atol=1e-4, rtol=1e-3
        )


def test_tables_and_words(circuit):
    assert circuit.title == (
        "circuit of ␣Paris rather than ␣basketball after <|endoftext|> ␣the ␣cat ␣sat ␣on: 2 neurons"
    )
    assert list(circuit.tables()) == [
        "neurons", "nodes", "edges", "accounts", "recovery_sizes", "recovery_summary",
    ]  # fmt: skip
    nodes = circuit.nodes()
    assert nodes.node.is_unique
    assert {*nodes.kind} == {"embedding", "position", "neuron", "biases", "rest", "answer"}
    assert {*circuit.edges().source} | {*circuit.edges().target} <= {*nodes.node}
    assert circuit.provenance.settings["rule"] == "rescale"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": 0}, "keep = 0: it must be at least 1."),
        ({"sign": "up"}, "sign = 'up': it must be both or toward."),
        ({"rule": "magic"}, "rule = 'magic': it must be rescale, relp or gradient."),
        ({"rule": "rescale"}, 'the rule "rescale" needs contrast prompts to rescale to.'),
    ],
)
def test_mistakes_are_said(planted, options, words):
    with pytest.raises(fp.FfnProbeError) as caught:
        fp.circuit(planted, PROMPT, ANSWER, **options)
    assert str(caught.value).startswith(words)


def test_sizes_are_checked_and_nothing_to_recover_is_said(circuit, monkeypatch):
    with pytest.raises(fp.FfnProbeError, match="sizes must be whole numbers"):
        fp.check_circuit(circuit, sizes=[10, 5])
    monkeypatch.setattr(recovery, "LEAST", 1e6)
    with pytest.raises(fp.FfnProbeError, match="there is nothing to recover"):
        fp.check_circuit(circuit, sizes=[5])


def test_areas_and_sizes_are_read_off_the_curve():
    assert recovery.measure_area([1, 10, 100], [0.0, 1.0, 1.3]) == pytest.approx(0.75)
    assert recovery.find_enough([10, 100], [0.3, 1.3]) == pytest.approx(10**1.5)
    assert recovery.find_enough([10, 100], [0.9, 0.1]) == 10
    assert recovery.find_enough([10, 100], [0.1, 0.7]) is None

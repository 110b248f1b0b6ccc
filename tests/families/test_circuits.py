"""Circuits on every family: every node closes, and every edge is a finite difference of the held model."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.circuits import graph
from tests.circuits.oracles import run_frozen
from tests.families.conftest import TEXT

ANSWER, RIVAL = 17, 23
OTHER = "the dog sat on the football court in Paris"


@pytest.fixture(scope="module")
def circuit(model):
    return fp.circuit(model, TEXT, ANSWER, versus=RIVAL, contrast=OTHER, keep=12)


def test_every_node_closes(circuit):
    table = circuit.accounts()
    parts = table[["neurons", "embeddings", "biases", "rest"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(table.score.tolist(), abs=1e-4)
    assert circuit.remainder < 1e-4
    scores = circuit.trace.scores
    for target in circuit.targets[1:]:
        held = circuit.trace.gate_scores if target.asks == "gate" else scores
        node = target.node
        assert target.measured == float(held[node.layer, node.position, node.neuron])
    logits = circuit.trace.logits[-1]
    assert circuit.logit == pytest.approx(float(logits[ANSWER] - logits[RIVAL]), abs=1e-6)


def _read(frozen, target, trace):
    if target.node is None:
        along = trace.model.unembedding[ANSWER] - trace.model.unembedding[RIVAL]
        return float(frozen.final[-1] @ along.double())
    held = frozen.gates if target.asks == "gate" else frozen.scores
    return float(held[target.node.layer, target.node.position, target.node.neuron])


def test_edges_are_finite_differences_with_everything_else_held(circuit):
    trace, account = circuit.trace, circuit.account
    whole = run_frozen(trace)
    torch.testing.assert_close(whole.scores.float(), trace.scores, atol=1e-3, rtol=1e-4)
    for column, node in enumerate(circuit.sources.nodes):
        if node.kind == "position":
            continue
        if node.kind == "neuron":
            changed = run_frozen(trace, without=(node.layer, node.position, node.neuron))
        else:
            changed = run_frozen(trace, word=node.position)
        drives = [
            _read(whole, target, trace) - _read(changed, target, trace)
            for target in circuit.targets
        ]
        assert account.drives[:, column].tolist() == pytest.approx(drives, abs=1e-4)


def test_the_named_head_carried_what_is_said(circuit):
    trace, account = circuit.trace, circuit.account
    heads, checked = trace.model.config.heads, 0
    whole = run_frozen(trace)
    through = account.drives - account.direct
    for row, column in (through.abs() > 1e-4).nonzero().tolist()[::7]:
        node, target = circuit.sources.nodes[column], circuit.targets[row]
        if node.kind == "position":
            continue
        by = divmod(int(account.head[row, column]), heads)
        hidden = {"word": node.position}
        if node.kind == "neuron":
            hidden = {"without": (node.layer, node.position, node.neuron)}
        carried = _read(whole, target, trace) - _read(
            run_frozen(trace, **hidden, by=by), target, trace
        )
        assert float(account.carried[row, column]) == pytest.approx(carried, abs=1e-4)
        checked += 1
    assert checked > 3


def test_influence_runs_through_the_edges(model, circuit):
    """With every neuron kept, what a node is worth is what its edges are worth: nothing runs outside."""
    whole = fp.circuit(model, TEXT, ANSWER, versus=RIVAL, contrast=OTHER, keep=10**6)
    inside = whole.flows.sum(dim=0)
    large = whole.worth.abs().max()
    torch.testing.assert_close(inside, whole.worth, atol=float(1e-4 * large), rtol=1e-3)
    names = [node.name for node in whole.sources.nodes]
    for node, worth in zip(circuit.sources.nodes, circuit.worth.tolist(), strict=True):
        assert whole.worth[names.index(node.name)] == pytest.approx(worth, abs=1e-9)


@pytest.mark.parametrize("rule", ["relp", "gradient"])
def test_other_rules_and_several_tokens_close(model, rule):
    found = fp.circuit(model, TEXT, " the cat", rule=rule, keep=5, replace="zero")
    assert len(found.question.pieces) > 1
    assert found.remainder < 1e-3
    assert found.account.drives[:, len(found.sources.nodes) - 5 :].any()


def test_a_few_targets_at_a_time_are_all_at_once(model, circuit, monkeypatch):
    monkeypatch.setattr(graph, "NUMBERS_AT_ONCE", 5 * circuit.trace.final.numel())
    again = fp.circuit(model, TEXT, ANSWER, versus=RIVAL, contrast=OTHER, keep=12)
    torch.testing.assert_close(again.account.drives, circuit.account.drives, atol=1e-5, rtol=1e-4)
    assert [target.node for target in again.targets] == [target.node for target in circuit.targets]

"""What `explain`, `paths` and `contrast` find on pocket, held to truth.csv: where each fact really sits."""

import csv
import random
from functools import partial

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions.question import choose_replacement, usual_replacement
from ffnprobe.models import pocket as table
from ffnprobe.models.forward import forward

SAMPLE = 12


@pytest.fixture(scope="module")
def truth():
    """Facts that are lost without one MLP at the subject's last token, a few by chance."""
    with (table.FOLDER / "truth.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["relation"], r["subject"]) for r in rows] == [
        (fact.relation, fact.subject) for fact in table.facts()
    ]
    known = [row for row in rows if row["is_lost_at_subject"] == "1"]
    return random.Random(0).sample(known, SAMPLE)


def put(row):
    """A fact as a prompt, and the text up to the end of its subject."""
    template = table.templates()[row["relation"]][0]
    before, after = template.split("{subject}")
    start = before + row["subject"]
    start = start[0].upper() + start[1:]
    return start + after, start


@pytest.fixture(scope="module")
def found(pocket, truth):
    return [fp.explain(pocket, put(row)[0], " " + row["answer"]) for row in truth]


@pytest.fixture(scope="module")
def alone(pocket, truth):
    """Compared with nothing: neurons are set to pocket's means, as for truth.csv."""
    return [fp.explain(pocket, put(row)[0], " " + row["answer"], contrast="none") for row in truth]


def last_of_subject(pocket, row):
    return len(pocket.vocab.ids(put(row)[1]))


def test_the_map_of_explain_is_the_truth(pocket, truth, alone):
    for row, one in zip(truth, alone, strict=True):
        assert one.rank == 1
        assert len(one.trace) == 1 + len(pocket.vocab.ids(put(row)[0]))
        place = last_of_subject(pocket, row)
        there = one.map[one.map.position == place].sort_values("layer").effect
        wanted = [float(value) for value in row["layers"].split()]
        assert there.tolist() == pytest.approx(wanted, abs=0.02)


def test_the_neurons_that_explain_lists_are_at_the_subject(pocket, truth, found):
    at_subject = 0
    for row, one in zip(truth, found, strict=True):
        best = one.neurons.loc[one.neurons.effect.idxmax()]
        at_subject += best.position == last_of_subject(pocket, row)
    assert at_subject >= 0.7 * SAMPLE


def test_without_the_neurons_listed_the_answer_is_gone_and_without_others_it_is_not(found):
    gone = 0
    for one in found:
        assert one.curve.table.worst.min() > 0.5
        gone += one.curve.least is not None and one.curve.least <= 10
    assert gone >= 0.6 * SAMPLE


def test_the_columns_on_layer_0_and_the_middle_are_what_removal_does(pocket, truth):
    means = usual_replacement(pocket, None)
    replacement = choose_replacement(pocket, means)[:, 0]
    for row in truth:
        ids = torch.tensor([[pocket.vocab.bos, *pocket.vocab.ids(put(row)[0])]])
        place = last_of_subject(pocket, row)

        def rest(seen, layer, place=place):
            changed = seen.clone()
            changed[:, place] = replacement[layer]
            return changed

        for column, layers in (("first", [0]), ("middle", [1, 2, 3, 4])):
            taps = {("activations", n): partial(rest, layer=n) for n in layers}
            said = int(forward(pocket, ids, taps)[0, -1].argmax())
            is_lost = said != pocket.vocab.one(" " + row["answer"])
            assert row[f"is_lost_without_{column}"] == str(int(is_lost))


def test_paths_begin_at_the_subject(pocket, truth):
    at_subject = 0
    for row in truth:
        strongest = fp.paths(fp.run(pocket, put(row)[0]), " " + row["answer"]).by_neuron(1).iloc[0]
        assert strongest.push_through_attention > 0
        at_subject += strongest.position == last_of_subject(pocket, row)
    assert at_subject >= 0.7 * SAMPLE

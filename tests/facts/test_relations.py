"""Which neurons carry a relation: counts against oracles, chance against shuffles, removal against replays."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.facts.relations import DIRECTLY, count_neurons
from ffnprobe.facts.rows import FactRow
from ffnprobe.facts.specificity import split_facts


@pytest.fixture(scope="module")
def base(tiny: fp.Model) -> fp.Scores:
    """Scores of sixty facts in three relations, to be given other neurons."""
    rows = [
        FactRow(f"the cat sat on {number}", " the", f"r{number % 3}", f"s{number}")
        for number in range(60)
    ]
    return fp.score(tiny, rows, top=5)


def listing(base: fp.Scores, neurons: torch.Tensor, relations: list[str]) -> fp.Scores:
    """Return the scores with these neurons and relations in place of their own."""
    rows = [replace(row, relation=name) for row, name in zip(base.rows, relations, strict=True)]
    table = base.table.assign(relation=relations)
    return replace(base, rows=tuple(rows), table=table, neurons=neurons)


def draw(generator: np.random.Generator, facts: int = 60, k: int = 5) -> torch.Tensor:
    """Draw k different neurons a fact, some far more often than others."""
    weights = 1 / np.arange(1, 41)
    rows = [generator.choice(40, k, replace=False, p=weights / weights.sum()) for _ in range(facts)]
    return torch.tensor(np.array(rows))


def test_counts_odds_and_z_are_those_of_a_contingency_table(base):
    scores = listing(base, draw(np.random.default_rng(0)), list(base.table.relation))
    found = scores.by_relation(top=40, hubs=True, permutations=1)
    lists = scores.neurons.tolist()
    assert len(found.neurons) > 90
    for row in found.neurons.itertuples():
        number = row.layer * 52 + row.neuron
        inside = [
            number in one
            for one, r in zip(lists, scores.rows, strict=True)
            if r.relation == row.relation
        ]
        outside = [
            number in one
            for one, r in zip(lists, scores.rows, strict=True)
            if r.relation != row.relation
        ]
        a, b, c, d = sum(inside), 20 - sum(inside), sum(outside), 40 - sum(outside)
        assert (row.facts, row.share, row.elsewhere) == (a, a / 20, c / 40)
        assert row.odds == pytest.approx((a + 0.5) * (d + 0.5) / ((b + 0.5) * (c + 0.5)))
        if b + d:
            squared = stats.chi2_contingency([[a, b], [c, d]], correction=False).statistic
            assert row.z**2 == pytest.approx(squared * 59 / 60)


def test_the_summary_is_pandas_own(base):
    found = base.by_relation(permutations=1).table
    assert list(found.relation) == ["r0", "r1", "r2"]
    for row in found.itertuples():
        part = base.table[base.table.relation == row.relation]
        assert (row.facts, row.known) == (len(part), part.known.sum())
        assert row.share_known == part.known.mean()
        assert row.median_rank == np.median(part["rank"])
        assert len(row.neurons.split()) == 5


def test_p_values_are_uniform_on_shuffled_relations(base):
    """The best neuron's p, though it was searched for; and the overlap's."""
    generator = np.random.default_rng(1)
    best, shared = [], []
    for trial in range(150):
        relations = list(generator.permutation(base.table.relation))
        scores = listing(base, draw(generator), relations)
        found = scores.by_relation(top=1, hubs=True, permutations=99, seed=trial)
        best.append(found.neurons.p[0])
        shared.append(scores.overlap(hubs=True, permutations=99, seed=trial).table.p[0])
    for p_values in (best, shared):
        assert stats.kstest(p_values, "uniform").pvalue > 0.01, np.sort(p_values)[::15]
        assert min(p_values) >= 0.01


def test_a_relations_own_neuron_is_found_beyond_chance(base):
    neurons = draw(np.random.default_rng(2))
    mine = torch.tensor(base.table.relation == "r1")
    neurons[mine, 0] = 77
    found = listing(base, neurons, list(base.table.relation)).by_relation(top=2, permutations=199)
    first = found.neurons[found.neurons.relation == "r1"].iloc[0]
    assert (first["name"], first.facts, first.share, first.elsewhere) == ("L1N25", 20, 1.0, 0.0)
    assert first.p == 1 / 200
    assert first.odds > 1000


def test_one_relation_alone_lists_its_most_common_neurons(base):
    neurons = draw(np.random.default_rng(7))
    found = listing(base, neurons, ["one"] * 60).by_relation(top=3, permutations=9).neurons
    counts = np.bincount(neurons.ravel().numpy())
    assert list(found.facts) == sorted(counts, reverse=True)[:3]
    assert set(found.z) == {0.0}
    assert set(found.p) == {1.0}
    assert found.odds.isna().all()


def test_facts_in_several_templates_are_shuffled_whole(base):
    """A fact's own neurons, repeated over its templates, are not evidence for its relation."""
    facts = np.repeat(np.arange(12), 5)
    rows = tuple(
        replace(row, subject=f"s{fact}", relation=f"r{fact % 3}")
        for row, fact in zip(base.rows, facts, strict=True)
    )
    own = torch.tensor(np.stack([100 + 5 * facts + n for n in range(5)], axis=1))
    table = base.table.assign(relation=[row.relation for row in rows])
    scores = replace(base, rows=rows, neurons=own, table=table)
    counting = count_neurons(scores)
    for shuffled in counting.shuffles(20, seed=3):
        assert all(len(set(shuffled[facts == fact])) == 1 for fact in range(12))
    assert scores.by_relation(permutations=99).neurons.p.min() > 0.2
    overlap = scores.overlap(permutations=99)
    assert list(overlap.table.overlap[:2]) == [0.0, 0.0]
    assert overlap.table.p[0] == 1.0


def test_hubs_are_named_and_set_aside(base):
    neurons = draw(np.random.default_rng(4)) + 60
    neurons[::2, 1] = 3  # in half the facts of every relation
    neurons[torch.tensor(base.table.relation == "r0"), 2] = 9  # in all facts of one
    scores = listing(base, neurons, list(base.table.relation))
    assert "L0N3" in scores.hubs()
    assert "L0N9" not in scores.hubs()
    aside, counted = (
        scores.by_relation(top=40, permutations=1),
        scores.by_relation(top=40, hubs=True, permutations=1),
    )
    assert aside.hubs == counted.hubs == tuple(scores.hubs())
    assert "L0N3" not in set(aside.neurons.name)
    assert "L0N3" in set(counted.neurons.name)
    assert listing(base, neurons, ["one"] * 60).hubs() == []
    assert aside.caption == f"{DIRECTLY}; hubs: {' '.join(scores.hubs())}"
    assert aside.provenance.settings["hubs"] == "set aside"
    assert counted.provenance.settings["hubs"] == "counted"
    assert aside.title == "60 facts of 3 relations"


def test_overlap_sets_hubs_aside_unless_they_are_asked_for(base):
    neurons = torch.arange(300).reshape(60, 5) % 150
    neurons[:, 0] = 155  # in every fact, and nothing else is shared but what the numbers repeat
    scores = listing(base, neurons, list(base.table.relation))
    assert scores.hubs() == ["L2N51"]
    aside, counted = scores.overlap(permutations=9), scores.overlap(hubs=True, permutations=9)
    assert counted.table.overlap[1] == pytest.approx(aside.table.overlap[1] + 1 / 5)
    assert aside.provenance.settings["hubs"] == "set aside"
    assert counted.provenance.settings["hubs"] == "counted"
    assert aside.table.attrs["provenance"] == aside.provenance.as_dict()


def test_overlap_is_counted_over_every_pair(base):
    neurons = draw(np.random.default_rng(5))
    rows = [
        replace(row, subject=f"s{n // 2}", relation=f"r{n // 20}")
        for n, row in enumerate(base.rows)
    ]
    scores = replace(
        base, rows=tuple(rows), neurons=neurons,
        table=base.table.assign(relation=[row.relation for row in rows]),
    )  # fmt: skip
    found = scores.overlap(hubs=True, permutations=1)
    lists = [set(one) for one in neurons.tolist()]
    pairs = pd.DataFrame(
        [
            (rows[a].relation, rows[b].relation, len(lists[a] & lists[b]) / 5)
            for a, b in combinations(range(60), 2)
            if rows[a].fact != rows[b].fact
        ],
        columns=["relation", "other", "overlap"],
    )
    is_within = pairs.relation == pairs.other
    within, between, random = found.table.overlap
    assert within == pytest.approx(pairs.overlap[is_within].mean())
    assert between == pytest.approx(pairs.overlap[~is_within].mean())
    assert random == 5 / (3 * 52)
    wanted = pairs.groupby(["relation", "other"]).overlap.agg(["size", "mean"])
    for row in found.relations.itertuples():
        assert (row.pairs, row.overlap) == pytest.approx(
            tuple(wanted.loc[(row.relation, row.other)])
        )
    assert found.values.shape == (60, 60)
    assert found.values[3, 17] == pytest.approx(len(lists[3] & lists[17]) / 5)
    assert list(found.facts.relation) == sorted(found.facts.relation)
    assert scores.overlap(permutations=1, most=30).values.shape == (30, 30)


def test_random_neurons_overlap_as_said(tiny, base):
    generator = np.random.default_rng(6)
    lists = torch.tensor(np.array([generator.choice(156, 5, replace=False) for _ in range(60)]))
    found = listing(base, lists, list(base.table.relation)).overlap(permutations=1).table
    assert found.overlap[1] == pytest.approx(found.overlap[2], rel=0.15)


@pytest.fixture(scope="module")
def sports(pocket) -> fp.Scores:
    """Some of pocket's facts: forty of a relation of interest, ten of each other one."""
    from ffnprobe.facts.formats import read_facts

    rows = read_facts("pocket").rows
    names = dict.fromkeys(row.relation for row in rows)
    some = [
        row
        for name in names
        for row in [r for r in rows if r.relation == name][: 40 if name == "sport" else 10]
    ]
    return fp.score(pocket, some)


def test_facts_of_a_relation_share_neurons_in_pocket(sports):
    within, between, random = sports.overlap(permutations=99).table.overlap
    assert within > 3 * between > 3 * random
    own = sports.by_relation(permutations=99).neurons
    assert own[own.relation == "sport"].p.iloc[0] == 0.01


def test_removing_a_relations_neurons_hurts_its_facts_most(sports):
    found = sports.specificity("sport", 10, most=20, draws=5)
    effect = found.table.set_index(["half", "facts_of", "removed"]).effect
    mine, random = f"{10} neurons of sport", "10 random neurons, 5 draws"
    for half in ("found on", "held out"):
        assert effect[half, "sport", mine] > 3 * abs(effect[half, "the others", mine])
        assert effect[half, "sport", mine] > 5 * abs(effect[half, "sport", random])
        assert effect[half, "sport", "nothing"] == 0
    settings = found.provenance.settings
    assert (settings["replace"], settings["removed"], settings["draws"]) == ("mean", 10, 5)
    assert settings["facts"] == "rows"
    assert found.title == f"removed together: {' '.join(found.neurons)}"
    assert len(found.neurons) == 10


def test_neurons_are_found_on_facts_that_are_not_tested(sports):
    half, held_out = split_facts(sports, seed=0)
    assert not set(half.rows) & set(held_out.rows)
    assert sorted(map(str, half.rows + held_out.rows)) == sorted(map(str, sports.rows))
    for relation in set(sports.table.relation):
        many = [int((part.table.relation == relation).sum()) for part in (half, held_out)]
        assert 0 <= many[0] - many[1] <= 1
    expected = half.by_relation(10, permutations=1).neurons
    found = sports.specificity("sport", 10, most=5, draws=1)
    assert found.neurons == tuple(expected[expected.relation == "sport"]["name"])
    for part, rows in ((half, "found on"), (held_out, "held out")):
        kept = found.table[(found.table.half == rows) & (found.table.facts_of == "sport")]
        assert set(kept.facts) == {min(5, int((part.table.relation == "sport").sum()))}


def test_removal_is_the_replays(sports, pocket):
    found = sports.specificity("sport", 6, most=1000, draws=1, replace="zero")
    rows = [row for row in sports.rows if row.relation == "sport"][:40]
    exact = [
        fp.ablate(
            fp.run(pocket, row.prompt), row.answer, together=[list(found.neurons)], replace="zero"
        )
        for row in rows
    ]
    rows = found.table[found.table.removed == "6 neurons of sport"]
    mine = rows[rows.facts_of == "sport"]
    assert mine.facts.tolist() == [20, 20]
    mine = mine[["effect", "lost"]].mean()
    assert mine.effect == pytest.approx(np.mean([float(e.values[0]) for e in exact]), abs=1e-4)
    assert mine.lost == pytest.approx(
        np.mean([float(e.log_probability[0]) for e in exact]), abs=1e-5
    )


def test_the_same_seed_gives_the_same_numbers(sports):
    one, same, other = (
        sports.by_relation(permutations=50, seed=seed).neurons for seed in (0, 0, 1)
    )
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize(
    ("verb", "words", "options"),
    [
        ("by_relation", "top = 0", {"top": 0}),
        ("by_relation", "0 permutations: a test needs at least one", {"permutations": 0}),
        ("overlap", "0 permutations", {"permutations": 0}),
        ("overlap", "0 facts cannot be compared", {"most": 0}),
        ("specificity", 'no fact is of the relation "chess"', {"relation": "chess"}),
        ("specificity", "0 draws: there must be at least one", {"relation": "r0", "draws": 0}),
    ],
)
def test_bad_options_are_refused(base, verb, words, options):
    with pytest.raises(OptionRefused, match=words):
        getattr(base, verb)(**options)

"""The evidence table: its numbers are the verbs' own, its grades mean what they say."""

import math
import random
from itertools import pairwise

import pandas as pd
import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.evidence import positions
from ffnprobe.evidence.grades import Bar, draw_alike, find_bar, name_grade
from ffnprobe.models import pocket as table
from ffnprobe.views.report.explanations import explanation_sections
from ffnprobe.views.terminal.explanations import print_as_known
from tests.conftest import JORDAN


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball")


def test_the_answer_is_explained_with_every_table(explanation):
    assert list(explanation.tables()) == [
        "neurons",
        "predictions",
        "map",
        "parts",
        "paths",
        "together",
        "curve",
        "sites",
    ]
    assert explanation.predictions.token[0] == "␣basketball"
    # Labels are there where the package has those of this pocket.
    own = explanation.neurons.drop(columns=["label", "label_f1"], errors="ignore")
    assert list(own.columns) == [
        "name", "layer", "neuron", "position", "token", "grade", "activation", "mean_activation",
        "push", "through", "effect", "z", "question_tokens", "answer_tokens",
    ]  # fmt: skip
    assert set(explanation.neurons.grade) <= {"A", "B", "C", ""}
    assert len(explanation.map) == explanation.trace.model.config.layers * len(explanation.trace)


def test_without_contrast_it_looks_where_neurons_are_estimated_to_help(explanation, jordan):
    helping = fp.estimate(jordan, " basketball").values.clamp(min=0).sum(dim=(0, 2))
    strongest = 1 + int(helping[1:-1].argmax())  # position 0 is BOS, set aside
    assert jordan.tokens[strongest] == "␣Jordan"
    assert set(explanation.neurons.position) == {strongest, len(jordan) - 1}


def test_of_a_larger_model_layers_are_removed_only_where_it_looks(
    pocket, jordan, monkeypatch, capsys
):
    """With `exact` everywhere; the numbers are the same."""
    monkeypatch.setattr(positions, "SMALL", 0)
    found, every = (fp.explain(pocket, JORDAN, " basketball", exact=e) for e in (False, True))
    last, whole = len(jordan) - 1, fp.ablate_layers(jordan, " basketball").values
    assert sorted(set(found.map.position)) == [2, last]
    assert sorted(set(every.map.position)) == list(range(last + 1))
    for one in (found, every):
        expected = [float(whole[row.layer, row.position]) for row in one.map.itertuples()]
        assert one.map.effect.tolist() == pytest.approx(expected, abs=1e-5)
        assert one.map.token.tolist() == [jordan.tokens[place] for place in one.map.position]
    effects = found.position_effects
    assert [place for place, effect in enumerate(effects) if effect is not None] == [2, last]
    assert effects[2] == pytest.approx(float(whole[:, 2].sum()), abs=1e-4)
    assert list(fp.plot(found, "map").layout.xaxis.ticktext) == ["␣Jordan", "␣of"]
    assert "more than any other measured" in fp.plot(found, "map").layout.title.text
    assert "any other measured" not in fp.plot(every, "map").layout.title.text
    assert "were not measured" in explanation_sections(found)[0]
    assert "were not measured" not in explanation_sections(every)[0]
    print_as_known([found])
    printed = capsys.readouterr().out
    assert "by position (logits); --exact: at all" in printed
    print_as_known([every])
    assert "--exact" not in capsys.readouterr().out


def test_its_numbers_are_those_of_attribute_and_ablate(explanation, jordan):
    pushes = fp.attribute(jordan, " basketball")
    last = len(jordan) - 1
    paths = fp.paths(jordan, " basketball", depth=jordan.model.config.layers)
    found = fp.search(jordan.model, " basketball", top=jordan.model.config.neurons).table.set_index(
        "name"
    )
    for row in explanation.neurons.itertuples():
        neuron = row.layer, row.neuron
        effects = fp.ablate(
            jordan, " basketball", position=row.position, neurons=[row.name], replace="mean",
            convention="centred",
        )  # fmt: skip
        assert row.effect == pytest.approx(float(effects.values[neuron]), abs=1e-4)
        if row.position == last:
            assert row.push == pytest.approx(float(pushes.values[neuron]), abs=1e-6)
            assert row.through == ""
        else:
            carriers = paths.carriers(row.name, row.position)
            assert row.push == pytest.approx(carriers.push.sum(), abs=1e-5)
            assert row.through in set(carriers.part)
        assert row.activation == pytest.approx(
            float(jordan.activations[row.layer, row.position, row.neuron]), abs=1e-6
        )
        acted = -1 if row.activation < 0 else 1
        assert row.z == pytest.approx(acted * found.z[row.name], abs=1e-4)


def test_the_parts_add_up_to_the_logit(explanation):
    *parts, total = explanation.parts.push
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert total == pytest.approx(float(explanation.trace.logits[-1].max()), abs=1e-4)


def test_removing_the_listed_neurons_hurts_more_than_neurons_like_them(explanation, jordan):
    listed, mean, worst = explanation.together[:3].itertuples()
    assert listed.token == "␣of"
    assert listed.effect > worst.effect >= mean.effect
    assert listed.probability_after < worst.probability_after <= mean.probability_after
    assert listed.probability_before == pytest.approx(
        jordan.predictions(1).probability.item(), abs=1e-5
    )
    # The last block removes all of them, at all their positions: equal to replaying it by hand.
    everything = explanation.together[explanation.together.token.str.contains(" ")]
    assert everything.removed.iloc[0] == f"the {len(explanation.neurons)} neurons listed"


def test_a_grade_counts_the_tests_passed():
    bar, values = Bar(push=0.5, effect=0.2), torch.tensor
    assert bar.count(values([3.0]), values([0.6]), values([0.3])).item() == 3
    assert bar.count(values([1.9]), values([0.6]), values([0.3])).item() == 2
    assert bar.count(values([1.9]), values([0.5]), values([0.3])).item() == 1
    assert bar.count(values([1.9]), values([0.5]), values([0.2])).item() == 0
    assert bar.count(values([3.0]), values([0.6]), values([math.nan])).item() == 2
    assert Bar(push=0.5, effect=None).count(values([3.0]), values([0.6]), None).item() == 2
    assert [name_grade(n, rank=1) for n in range(4)] == ["", "C", "B", "A"]
    assert name_grade(3, rank=100) == "A"
    assert name_grade(3, rank=101) == "B"


def test_the_bar_rises_with_the_number_of_neurons_looked_at():
    chance = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    few, many = (find_bar(chance, looked_at=n) for n in (10, 100_000))
    assert chance.quantile(0.99) <= few < many
    # Of a hundred thousand normal values none should pass, nor should one far out move the bar.
    assert many > 4.4
    assert find_bar(torch.cat([chance, torch.tensor([1e6])]), looked_at=100_000) < many + 0.5
    assert find_bar(-10 + chance, looked_at=10) == 0.0
    assert find_bar(chance[:0], looked_at=10) == 0.0


def test_the_control_is_alike_in_layer_and_activation():
    sizes = torch.rand(3, 200, generator=torch.Generator().manual_seed(1))
    chosen = [fp.NeuronId(0, 7), fp.NeuronId(2, 100)]
    drawn = draw_alike(sizes, chosen, 50, generator=torch.Generator().manual_seed(2))
    assert len(drawn) == 50
    assert not set(drawn) & set(chosen)
    assert {one.layer for one in drawn} == {0, 2}
    for one in drawn:
        own = chosen[0] if one.layer == 0 else chosen[1]
        gaps = (sizes[own.layer] - sizes[own.layer, own.neuron]).abs()
        assert int((gaps < gaps[one.neuron]).sum()) <= 20


def test_an_answer_the_model_would_not_give_is_said_to_be_one(pocket, explanation):
    assert explanation.standing.startswith(
        f"rank 1 of {len(explanation.trace.model.vocab):,}, probability "
    )
    assert "would not give" not in explanation.standing
    trace = explanation.trace
    unlikely = int(trace.logits[-1].argsort(descending=True)[500])
    found = fp.explain(pocket, JORDAN, unlikely)
    assert found.rank == 501
    assert found.standing.endswith("this explains an answer that the model would not give")
    assert "A" not in set(found.neurons.grade)


def test_an_answer_of_several_tokens_adds_up_over_its_pieces(pocket, jordan):
    answer = " basketball and"
    found = fp.explain(pocket, JORDAN, answer, top=3)
    assert found.provenance.answer == "␣basketball ␣and"
    pieces = found.pieces.groupby(["name", "position"], sort=False)[["push", "effect"]].sum()
    for row in found.neurons.itertuples():
        own = pieces.loc[(row.name, row.position)]
        assert row.push == pytest.approx(own.push, abs=1e-5)
        assert row.effect == pytest.approx(own.effect, abs=1e-4)
        exact = fp.ablate(jordan, answer, neurons=[row.name], position=row.position)
        assert row.effect == pytest.approx(exact.top(1).effect.item(), abs=1e-4)
    *parts, total = found.parts.push
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert abs(found.parts.push[found.parts.part == "rounding"].item()) < 2e-3
    logits = sum(piece.logit for piece in fp.attribute(jordan, answer).pieces)
    assert total == pytest.approx(logits, abs=1e-5)
    assert "pieces" in found.tables()


def test_without_an_answer_the_models_own_is_explained(pocket):
    explanation = fp.explain(pocket, "The capital of France is", effects=False)
    assert explanation.provenance.answer == "␣Paris"
    assert list(explanation.tables()) == ["neurons", "predictions", "parts", "paths"]
    assert set(explanation.neurons.grade) <= {"B", "C", ""}


def test_versus_compares_with_the_rival(pocket):
    explanation = fp.explain(pocket, JORDAN, " basketball", versus=" football", top=4)
    trace = explanation.trace
    ids = [pocket.vocab.one(token) for token in (" basketball", " football")]
    gap = float(trace.logits[-1, ids[0]] - trace.logits[-1, ids[1]])
    assert explanation.parts.push.iloc[-1] == pytest.approx(gap, abs=1e-4)


def test_a_model_without_means_is_explained_with_zeros(tiny):
    explanation = fp.explain(tiny, "the cat sat on", " the", top=5)
    assert explanation.provenance.settings["replace"] == "zero"
    assert "mean_activation" not in explanation.neurons
    assert tiny.is_unchanged()


def test_neurons_are_listed_at_earlier_positions_too(explanation):
    earlier = explanation.neurons[explanation.neurons.position < len(explanation.trace) - 1]
    assert len(earlier) == 10
    assert (earlier.push != 0).any()
    assert 0 not in set(earlier.position)
    assert explanation.provenance.settings["set_aside"] == ["<|endoftext|> at 0 (first position)"]


def test_an_explanation_grows_step_by_step(pocket, explanation):
    steps = list(fp.explain_stepwise(pocket, JORDAN, " basketball"))
    assert list(steps[0].tables()) == ["neurons", "predictions", "parts", "paths"]
    assert "effect" not in steps[0].neurons
    known = ["neurons", "predictions", "map", "parts", "paths", "curve", "sites"]
    assert list(steps[1].tables()) == known
    told = [step.provenance.settings.get("effects") for step in steps]
    assert told == ["not measured", "of layers only", "of neurons by themselves", None]
    assert steps[2].neurons.equals(steps[3].neurons)
    for earlier, later in pairwise(steps):
        assert set(earlier.tables()) <= set(later.tables())
    for name, expected in explanation.tables().items():
        pd.testing.assert_frame_equal(steps[-1].tables()[name], expected)
    assert steps[-1].provenance == explanation.provenance


def test_every_neuron_is_removed_layer_by_layer(pocket, jordan):
    counted = []
    _, _, *midway, alone, last = fp.explain_stepwise(
        pocket, JORDAN, " basketball", top=40, exact=True,
        progress=lambda *count: counted.append(count),
    )  # fmt: skip
    layers, many = pocket.config.layers, pocket.config.neurons
    told = [step.provenance.settings["effects"] for step in midway]
    assert told == [f"of {number} of {layers} layers" for number in range(1, layers)]
    assert alone.neurons.equals(last.neurons)
    assert counted[-1] == (many, many)
    names = list(midway[0].neurons.name)
    found = fp.ablate(jordan, " basketball", neurons=names).values
    for measured_layers, step in enumerate(midway, start=1):
        measured = step.neurons.dropna(subset="effect")
        assert measured.effect.tolist() == pytest.approx(
            [float(found[row.layer, row.neuron]) for row in measured.itertuples()], abs=1e-4
        )
        assert measured.index.equals(step.neurons.index[step.neurons.layer < measured_layers])
    assert len(midway[0].neurons.effect.dropna()) < len(names)


def test_steps_end_where_the_caller_stops(pocket):
    done = []
    steps = fp.explain_stepwise(pocket, JORDAN, progress=lambda *count: done.append(count))
    next(steps)
    steps.close()
    assert done == []


def test_without_effects_the_first_step_is_the_last(pocket):
    (only,) = fp.explain_stepwise(pocket, JORDAN, effects=False, top=2)
    assert only.provenance.settings == {"effects": "not measured"}


def test_a_prompt_of_one_token_has_no_earlier_position(tiny):
    explanation = fp.explain(tiny, [7], " the", top=3, bos=False)
    assert set(explanation.neurons.position) == {0}


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        (" basket ball", {"versus": " football"}, "an answer with versus needs one"),
        (" basketball", {"contrast": JORDAN}, "no contrast prompt differs"),
        (
            " basketball",
            {"contrast": ["Tiger Woods plays the sport of"], "replace": "zero"},
            "set to its mean",
        ),
        (" basketball", {"versus": " basketball"}, "nothing to compare"),
        (" basketball", {"top": 0}, "top = 0"),
        (" basketball", {"versus": " foot ball"}, "--versus needs one"),
    ],
)
def test_bad_input_is_refused_in_words(pocket, answer, options, words):
    with pytest.raises(FfnProbeError, match=words):
        fp.explain(pocket, JORDAN, answer, **options)
    with pytest.raises(OptionRefused, match="cannot replace an activation"):
        fp.explain(pocket, JORDAN, " basketball", replace="nothing")


def test_listed_neurons_carry_their_facts(pocket, capsys):
    """Without a fact's listed neurons it loses more than in the worst of the draws, in 90 of 100 facts."""
    chosen = random.Random(0).sample([p for p in table.prompts() if not p.is_held_out], 100)
    wins, lost = 0, []
    for number, prompt in enumerate(chosen):
        together = fp.explain(pocket, prompt.text, prompt.fact.answer, seed=number).together
        listed = together[together.removed.str.endswith("listed")].iloc[-1]
        worst = together[together.removed.str.contains("worst of")].iloc[-1]
        wins += listed.effect > worst.effect
        lost.append(1 - listed.probability_after / listed.probability_before)
    lost.sort()
    with capsys.disabled():
        quarters = [lost[int(q * (len(lost) - 1))] for q in (0, 0.25, 0.5, 0.75, 1)]
        print(
            f"\nlisted neurons beat the worst draw in {wins} of 100 facts; share of the probability lost "
            f"(least, quarters, most): {' '.join(f'{q:.3f}' for q in quarters)}"
        )
    assert wins >= 90
    assert lost[50] > 0.5


def test_an_explanation_is_told_as_it_grows_and_ends_the_same(pocket):
    counted = []
    *seen, explanation = fp.explain_stepwise(
        pocket, JORDAN, " basketball", top=4,
        progress=lambda done, total: counted.append((done, total)),
    )  # fmt: skip
    whole = fp.explain(pocket, JORDAN, " basketball", top=4)
    for name, known in whole.tables().items():
        assert explanation.tables()[name].equals(known), name
    assert explanation.provenance == whole.provenance
    assert "effect" not in seen[0].neurons
    assert seen[0].map is None
    assert seen[1].map.equals(whole.map)
    assert explanation.neurons.effect.notna().all()
    done, total = counted[-1]
    assert done == total < pocket.config.neurons
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)

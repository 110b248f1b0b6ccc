"""The evidence table: its numbers are the verbs' own, its grades mean what they say."""

import random

import pytest

import ffnprobe as fp
from ffnprobe.documents.html import write_html
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.evidence import explanation as explanations
from ffnprobe.evidence.explaining import PHASES
from ffnprobe.models import pocket as table
from ffnprobe.views.terminal import print_document
from tests.conftest import JORDAN


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball")


def test_the_answer_is_explained_with_every_table(explanation):
    assert list(explanation.tables()) == [
        "neurons", "against", "curve", "predictions", "map", "parts", "paths", "sites",
    ]  # fmt: skip
    assert explanation.predictions.token[0] == "␣basketball"
    # Labels are there where the package has those of this pocket.
    own = explanation.neurons.drop(columns=["label", "label_f1"], errors="ignore")
    assert list(own.columns) == [
        "name", "layer", "neuron", "position", "token", "grade", "activation",
        "set_to", "push", "push_through_attention", "through", "effect", "z",
        "question_tokens", "answer_tokens",
    ]  # fmt: skip
    assert set(explanation.neurons.grade.str[:1]) <= {"A", "B", "C", ""}
    assert len(explanation.neurons) == 10
    assert len(explanation.map) == explanation.trace.model.config.layers * len(explanation.trace)


def test_of_a_larger_model_layers_are_removed_only_where_it_looks(pocket, monkeypatch, capsys):
    monkeypatch.setattr(explanations, "SMALL", 0)
    found = fp.explain(pocket, JORDAN, " basketball")
    last, question = len(found.trace) - 1, found.question
    whole = fp.ablate_layers(found.trace, " basketball", contrast=question.contrast).values
    assert sorted(set(found.map.position)) == [1, 2, last]
    expected = [float(whole[row.layer, row.position]) for row in found.map.itertuples()]
    assert found.map.effect.tolist() == pytest.approx(expected, abs=1e-5)
    assert found.map.token.tolist() == [found.trace.tokens[place] for place in found.map.position]
    effects = found.position_effects
    assert [place for place, effect in enumerate(effects) if effect is not None] == [1, 2, last]
    assert effects[2] == pytest.approx(float(whole[:, 2].sum()), abs=1e-4)
    assert list(fp.plot(found, "map").layout.xaxis.ticktext) == ["Michael", "␣Jordan", "␣of"]
    assert "more than any other measured" in fp.plot(found, "map").layout.title.text
    assert write_html(found.document()).count("the last token were measured; ablate-layers") == 2
    print_document("", found.document(), is_full=True)
    assert "the last token were measured; ablate-layers" in capsys.readouterr().out


def test_its_numbers_are_those_of_attribute_paths_and_ablate(explanation, jordan):
    pushes = fp.attribute(jordan, " basketball")
    last, contrast = len(jordan) - 1, explanation.question.contrast
    paths = fp.paths(jordan, " basketball", depth=jordan.model.config.layers)
    found = fp.search(jordan.model, " basketball", top=jordan.model.config.neurons).table.set_index(
        "name"
    )
    for row in (*explanation.neurons.itertuples(), *explanation.against.itertuples()):
        neuron = row.layer, row.neuron
        effects = fp.ablate(
            jordan, " basketball", position=row.position, neurons=[row.name], contrast=contrast
        )
        assert row.effect == pytest.approx(float(effects.values[neuron]), abs=1e-4)
        direct = float(pushes.values[neuron]) if row.position == last else 0.0
        assert row.push == pytest.approx(direct, abs=1e-6)
        carriers = paths.carriers(row.name, row.position)
        assert row.push_through_attention == pytest.approx(carriers.push.sum(), abs=1e-5)
        assert row.through in ({""} if row.position == last else set(carriers.part))
        assert row.activation == pytest.approx(
            float(jordan.activations[row.layer, row.position, row.neuron]), abs=1e-6
        )
        acted = -1 if row.activation < 0 else 1
        assert row.z == pytest.approx(acted * found.z[row.name], abs=1e-4)


def test_what_holds_the_answer_back_is_shown(explanation, jordan):
    """L1N42 is Jordan the country; without it basketball gains."""
    assert explanation.against.name[0] == "L1N42"
    assert explanation.against.effect.tolist() == sorted(explanation.against.effect)
    assert (explanation.against.effect < 0).all()
    assert explanation.remarks[0].startswith("Held back by L1N42@2 at ␣Jordan (-1.25), ")


def test_a_neuron_that_matters_by_keeping_quiet_says_so(pocket):
    """Where it is set to more than it has, its effect is what others have and this prompt has not."""
    found = fp.explain(pocket, "The capital of France is", top=60)
    own = found.neurons
    quiet = own[(own.set_to.abs() > own.activation.abs()) & (own.effect > 0)]
    assert len(quiet)
    assert all(f"{name}@" in found.remarks[-1] for name in quiet.name[:3])
    assert found.remarks[-1].endswith(f" and {len(quiet) - 3} more.") == (len(quiet) > 3)
    assert found.remarks[-1].startswith("Quieter here than for others: ")


def test_the_parts_add_up_to_the_logit(explanation):
    *parts, total = explanation.parts.push
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert total == pytest.approx(float(explanation.trace.logits[-1].max()), abs=1e-4)


def test_an_answer_the_model_would_not_give_is_said_to_be_one(pocket, explanation):
    assert explanation.standing == (
        '␣basketball, 99.97 %, rank 1 of 5,022, after "Michael Jordan plays the sport of"'
    )
    assert "would not give" not in explanation.standing
    trace = explanation.trace
    unlikely = int(trace.logits[-1].argsort(descending=True)[500])
    found = fp.explain(pocket, JORDAN, unlikely)
    assert found.rank == 501
    assert found.standing.endswith(": an answer that the model would not give")
    assert not found.neurons.grade.str.startswith("A").any()


def test_an_answer_of_several_tokens_adds_up_over_its_pieces(pocket, jordan):
    answer = " basketball and"
    found = fp.explain(pocket, JORDAN, answer, top=3)
    assert found.provenance.answer == "␣basketball ␣and"
    columns, contrast = ["push", "push_through_attention", "effect"], found.question.contrast
    pieces = found.pieces.groupby(["name", "position"], sort=False)[columns].sum()
    for row in found.neurons.itertuples():
        own = pieces.loc[(row.name, row.position)]
        assert row.push == pytest.approx(own.push, abs=1e-5)
        through = own.push_through_attention
        assert row.push_through_attention == pytest.approx(through, abs=1e-5)
        assert row.effect == pytest.approx(own.effect, abs=1e-4)
        exact = fp.ablate(
            jordan, answer, neurons=[row.name], position=row.position, contrast=contrast
        )
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
    assert set(explanation.neurons.grade.str[:1]) <= {"B", "C", ""}
    assert explanation.verdict == ()


def test_versus_compares_with_the_rival(pocket):
    explanation = fp.explain(pocket, JORDAN, " basketball", versus=" football", top=4)
    trace = explanation.trace
    ids = [pocket.vocab.one(token) for token in (" basketball", " football")]
    gap = float(trace.logits[-1, ids[0]] - trace.logits[-1, ids[1]])
    assert explanation.parts.push.iloc[-1] == pytest.approx(gap, abs=1e-4)


def test_a_model_without_means_is_explained_with_zeros(tiny):
    explanation = fp.explain(tiny, "the cat sat on", " the", top=5, contrast="none")
    assert explanation.provenance.settings["replace"] == "zero"
    assert (explanation.neurons.set_to == 0).all()
    assert tiny.is_unchanged()


def test_no_neuron_is_listed_at_an_attention_sink(explanation):
    assert 0 not in set(explanation.neurons.position)
    assert explanation.provenance.settings["set_aside"] == ["<|endoftext|> at 0 (first position)"]


def test_it_says_how_far_it_is(pocket):
    done = []
    fp.explain(pocket, JORDAN, top=2, progress=lambda *count: done.append(count))
    assert done == [(number, PHASES) for number in range(1, PHASES + 1)]


def test_it_says_how_estimates_agree_with_effects(explanation):
    said = explanation.provenance.settings
    assert 40 <= said["removed"] <= 60
    assert said["looked_at"] == 6 * explanation.trace.model.config.neurons
    assert 0.5 < said["agreement"] <= 1


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
        (" basketball", {"contrast": ["none", "Tiger Woods plays the sport of"]}, "other prompts"),
        (" basketball", {"subject": ""}, "is not in the prompt"),
        (" basketball", {"versus": " basketball"}, "nothing to compare"),
        (" basketball", {"top": 0}, "top = 0"),
        (" basketball", {"versus": " foot ball"}, "--versus needs one"),
    ],
)
def test_bad_input_is_refused_in_words(pocket, answer, options, words):
    with pytest.raises(FfnProbeError, match=words):
        fp.explain(pocket, JORDAN, answer, **options)
    with pytest.raises(OptionRefused, match="replace = 'nothing': it must be zero or mean"):
        fp.explain(pocket, JORDAN, " basketball", replace="nothing")


def test_listed_neurons_carry_their_facts(pocket, capsys):
    """Without the first ten a fact is no longer first in 80 of 100; without ten like them it is likely."""
    chosen = random.Random(0).sample([p for p in table.prompts() if not p.is_held_out], 100)
    fallen, worst = 0, []
    for number, prompt in enumerate(chosen):
        curve = fp.explain(pocket, prompt.text, prompt.fact.answer, seed=number, top=2).curve
        fallen += curve.least is not None and curve.least <= 10
        worst.append(curve.table.worst[curve.table.removed <= 10].min())
    with capsys.disabled():
        print(f"\n{fallen} of 100 facts fall within ten; the worst draw leaves {min(worst):.3f}")
    assert fallen >= 80
    assert sorted(worst)[5] > 0.5

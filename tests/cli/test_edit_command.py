"""`ffnprobe edit`: a certificate, a folder, and bad input in words."""

import json

import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe, nothing_written, refused

JORDAN = "Michael Jordan plays the sport of"


@pytest.fixture
def facts(tmp_path):
    """A small table, so that the certificate is soon made."""
    path = tmp_path / "facts.csv"
    path.write_text(
        "prompt,answer,subject\n"
        f"{JORDAN}, basketball,Michael Jordan\n"
        "Tiger Woods plays the sport of, golf,Tiger Woods\n",
        encoding="utf-8",
    )
    return path


def test_a_dry_run_prints_the_certificate_and_writes_nothing(tmp_path, facts):
    with nothing_written(tmp_path):
        done = ffnprobe(
            "edit", JORDAN, " tennis", "--dry-run", "--facts", facts, "--format", "json"
        )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["certificate"][0]["measure"] == "efficacy"
    assert found["edits"][0]["answer"] == " tennis"


def test_a_folder_is_written_that_loads_again(tmp_path, facts):
    folder = tmp_path / "tennis"
    done = ffnprobe(
        "edit", JORDAN, " tennis", "--save", folder, "--method", "memit", "--facts", facts
    )
    assert done.exit_code == 0, done.output
    assert "certificate" in done.stdout
    model = fp.load(folder)
    assert model.fingerprint[:8] in done.stderr
    assert model.fingerprint != fp.load("pocket").fingerprint
    before, after = (
        float(fp.run(one, JORDAN).logits[-1].softmax(-1)[one.vocab.one(" tennis")])
        for one in (fp.load("pocket"), model)
    )
    assert after > before


def test_one_of_save_and_dry_run_is_needed():
    for words in ([], ["--save", "x", "--dry-run"]):
        done = ffnprobe("edit", JORDAN, " tennis", *words)
        assert done.exit_code == 2
        assert "--save FOLDER, or --dry-run" in done.stderr.replace("\n", " ")


REFUSED = {
    "subject": (["--subject", "Kobe"], "is not in the prompt"),
    "facts": (["--facts", "nowhere.csv"], "there is no file or folder nowhere.csv"),
    "text": (["--text", "nowhere.txt"], "nowhere.txt"),
    "layer": (["--layer", "77"], "77"),
    "keys": (["--keys", "nowhere"], "there is no scan of keys in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_and_nothing_written(tmp_path, case):
    words, said = REFUSED[case]
    with nothing_written(tmp_path):
        assert said in refused("edit", JORDAN, " tennis", "--save", tmp_path / "out", *words)


def test_an_empty_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    told = refused("edit", JORDAN, " tennis", "--dry-run", "--text", tmp_path / "empty.txt")
    assert "empty.txt is empty" in told.replace("\n", "")


def test_a_prompt_without_an_answer_and_a_subject_of_a_table_are_refused(facts):
    for words, said in (
        ([JORDAN], "each prompt needs its new answer"),
        ([facts, "--subject", "Michael Jordan"], "a table has a column subject"),
    ):
        done = ffnprobe("edit", *words, "--dry-run")
        assert done.exit_code == 2
        assert said in " ".join(done.stderr.replace("│", " ").split())


def test_an_answer_without_its_space_is_noted(facts):
    done = ffnprobe("edit", JORDAN, "tennis", "--dry-run", "--facts", facts)
    assert 'with a leading space, " tennis" is one token' in done.stderr.replace("\n", " ")


def test_a_folder_that_exists_is_refused_before_any_work(tmp_path):
    assert "exists already" in refused("edit", JORDAN, " tennis", "--save", tmp_path)


def test_texts_are_scanned_once_and_used_again(tmp_path, monkeypatch, facts):
    monkeypatch.setenv("FFNPROBE_CACHE", str(tmp_path / "cache"))
    texts = tmp_path / "texts.txt"
    texts.write_text("Michael Jordan plays the sport of basketball. " * 5, encoding="utf-8")
    said = refused("edit", JORDAN, " tennis", "--dry-run", "--texts", texts)
    assert "tokens do not span" in said
    assert len(list((tmp_path / "cache" / "keys").iterdir())) == 1

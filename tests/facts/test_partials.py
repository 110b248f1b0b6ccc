"""What is kept of an interrupted table is refused if it is damaged, foreign or in use."""

import json
import os
import random
import shutil

import pytest

from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from ffnprobe.facts.partials import Partials

RUN = {"facts": "ab", "model": "cd"}
FACTS = [{"rank": 1, "logit": 0.1}, {"rank": 3, "logit": -2.5}]


@pytest.fixture
def folder(tmp_path):
    """Two batches of a run that was stopped."""
    path = tmp_path / "my data" / "scores.csv.partial"
    path.parent.mkdir()
    with Partials.open(path, RUN) as kept:
        for batch in range(2):
            kept.write(batch, FACTS[batch:])
    return path


def test_a_batch_reads_back(folder):
    with Partials.open(folder, RUN) as kept:
        assert [kept.read(batch) for batch in range(3)] == [FACTS, FACTS[1:], None]
    assert sorted(os.listdir(folder)) == ["batch-000000.json", "batch-000001.json", "run.json"]


def test_every_damage_is_refused(folder):
    path, drawn = folder / "batch-000000.json", random.Random(0)
    data = path.read_bytes()
    broken = [b"", b"null", b"[]", data[:-3], b"[" * 10**5, data.replace(b"-2.5", b"-2.4")]
    for place in drawn.sample(range(len(data)), 30):
        flipped = bytearray(data)
        flipped[place] ^= 1 << drawn.randrange(8)
        broken.append(bytes(flipped))
    with Partials.open(folder, RUN) as kept:
        for bad in broken:
            path.write_bytes(bad)
            with pytest.raises(DataRefused, match=r"000.json is damaged or of another") as refusal:
                kept.read(0)
            assert refusal.value.remedy == f"--out '{folder.parent}/scores-2.csv'"
        assert kept.read(1) == FACTS[1:]


def test_a_batch_of_another_run_or_number_is_refused(folder, tmp_path):
    shutil.copy(folder / "batch-000000.json", folder / "batch-000001.json")
    other = tmp_path / "other.csv.partial"
    with Partials.open(other, RUN | {"model": "ef"}) as kept:
        shutil.copy(folder / "batch-000000.json", other)
        with pytest.raises(DataRefused, match="its checksum is another"):
            kept.read(0)
    with Partials.open(folder, RUN) as kept:
        assert kept.read(0) == FACTS
        with pytest.raises(DataRefused, match="its checksum is another"):
            kept.read(1)


def test_another_run_is_refused_without_advice_to_delete(folder):
    for run in (RUN | {"model": "ef"}, RUN | {"facts": "\udce9"}):
        with pytest.raises(OptionRefused, match="begun with other facts") as refusal:
            Partials.open(folder, run).__enter__()
        assert "rm " not in str(refusal.value)
    (folder / "run.json").write_bytes(b"\xff")
    with pytest.raises(OptionRefused, match="begun with other facts"):
        Partials.open(folder, RUN).__enter__()


def test_killed_before_its_description_the_folder_is_begun_again(folder):
    for path in folder.iterdir():
        path.unlink()
    (folder / ".ffnprobe.1.ab").touch()
    with Partials.open(folder, RUN):
        assert json.loads((folder / "run.json").read_text()) == RUN


def test_a_second_run_is_refused_while_the_first_is_at_work(folder):
    with (
        Partials.open(folder, RUN),
        pytest.raises(FileNotWritten, match="another process is writing to"),
        Partials.open(folder, RUN),
    ):
        pass

"""`ffnprobe label`: the table by layer, the neurons named, files, and what it says when it cannot."""

import json
from shutil import copytree

import pandas as pd
import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe as run_command
from tests.labels.conftest import NEURONS, TARGET


@pytest.fixture(scope="module")
def labelled(planted, store, tmp_path_factory):
    folder = copytree(store, tmp_path_factory.mktemp("labelled") / "scan")
    fp.label(planted, folder)
    return folder


def test_the_command_labels_a_store(planted, store, tmp_path):
    folder = copytree(store, tmp_path / "scan")
    done = run_command("label", "--model", planted.source.where, "--store", str(folder))
    assert done.exit_code == 0, done.stderr
    assert "55.6% of 9 neurons explained" in done.stderr
    assert "explained" in done.stdout
    assert (folder / "labels.safetensors").is_file()
    named = run_command(
        "label", "L0N0", "L0N6", "--model", planted.source.where, "--store", str(folder)
    )
    assert f'"{TARGET}"' in named.stdout
    assert "unexplained" in named.stdout


def test_labels_are_exported_as_json_lines_and_parquet(planted, labelled, tmp_path):
    labels = fp.label(planted, labelled)
    fp.save(labels, tmp_path / "labels.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == labels.table.name.tolist()
    found = rows[NEURONS["token"]]
    assert found["opens"] == f'"{TARGET}"'
    assert found["f1"] == pytest.approx(labels.table.f1[NEURONS["token"]])
    assert 1 <= len(found["examples"]) <= 3
    assert all(f"[{TARGET}]" in example for example in found["examples"])
    assert rows[0]["provenance"]["settings"]["share"] == 0.01
    assert "provenance" not in rows[1]
    frame = pd.read_json(tmp_path / "labels.jsonl", lines=True)
    assert frame.label.tolist() == labels.table.label.tolist()
    fp.save(labels, tmp_path / "labels.parquet")
    again = fp.open_result(tmp_path / "labels.parquet")
    assert again.table.equals(labels.table)


def test_a_folder_without_a_scan_is_refused(planted, tmp_path):
    done = run_command("label", "--model", planted.source.where, "--store", str(tmp_path / "none"))
    assert done.exit_code == 1
    assert "there is no scan in" in done.stderr

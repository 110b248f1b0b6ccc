"""Roles: from the weights alone, and with a corpus; shown wherever a store has labels."""

import json
import math
from shutil import copytree

import numpy as np
import pytest

import ffnprobe as fp
from ffnprobe.reading.measures import name_role
from tests.cli.runner import ffnprobe
from tests.labels.conftest import NEURONS, TARGET


@pytest.fixture(scope="module")
def labelled(planted, store, tmp_path_factory):
    folder = copytree(store, tmp_path_factory.mktemp("labelled") / "scan")
    fp.label(planted, folder)
    return folder


@pytest.fixture(scope="module")
def surveyed(planted, labelled):
    return fp.survey(planted, scan=fp.Scan.open(labelled), top=3)


def test_the_eraser_erases_and_the_others_translate(surveyed):
    rows = surveyed.table.iloc[: len(NEURONS)]
    assert rows.role[NEURONS["eraser"]] == "erases"
    assert rows.reads_writes[NEURONS["eraser"]] == pytest.approx(-1, abs=0.01)
    assert rows.role[NEURONS["token"]] == "translates"
    assert name_role(math.nan) == ""
    assert name_role(0.4, fp.Thresholds(role=0.3)) == "strengthens"


def test_a_corpus_tells_what_the_weights_do_not(surveyed):
    roles = dict(zip(NEURONS, surveyed.table.corpus_role, strict=False))
    assert roles == {
        "token": "token", "bigram": "n-gram", "position": "positional", "number": "token",
        "dead": "dead", "eraser": "token", "random": "",
    }  # fmt: skip
    assert surveyed.table.label[NEURONS["token"]].startswith(f'"{TARGET}"')
    assert surveyed.table.label_f1[NEURONS["token"]] > 0.8


def test_a_scan_without_labels_still_tells_dead_and_positional(planted, store):
    table = fp.survey(planted, scan=fp.Scan.open(store), top=3).table
    assert "label" not in table
    assert table.corpus_role[NEURONS["dead"]] == "dead"
    assert table.corpus_role[NEURONS["position"]] == "positional"
    assert table.corpus_role[NEURONS["token"]] == ""


def test_the_share_of_a_positional_neuron_can_be_chosen(planted, store):
    def name(position):
        limits = fp.Thresholds(position=position)
        found = fp.survey(planted, scan=fp.Scan.open(store), top=3, thresholds=limits)
        return found.table.corpus_role[NEURONS["position"]]

    assert (name(0.9), name(1.0)) == ("positional", "")


def test_frequency_is_the_correlation_over_all_tokens(planted, store, surveyed):
    kept = fp.Scan.open(store).kept
    wanted = np.log1p(np.bincount(kept.ids.numpy(), minlength=planted.config.vocab))
    dots = (planted.answers[0].double() @ planted.unembedding.double().mT).numpy()
    for neuron in (0, 3, 5):
        expected = np.corrcoef(dots[neuron], wanted)[0, 1]
        assert surveyed.table.frequency[neuron] == pytest.approx(expected, abs=1e-4)
    low = fp.survey(
        planted, scan=fp.Scan.open(store), top=3, thresholds=fp.Thresholds(frequency=0.0)
    )
    assert low.table.corpus_role[NEURONS["random"]] == "frequency"


def test_commands_show_labels_of_a_store(planted, labelled, tmp_path):
    where = ("--model", planted.source.where, "--store", str(labelled))
    shown = ffnprobe("read", "L0N0", *where)
    assert f'label: "{TARGET}"' in shown.stdout
    assert "F1 0.9" in shown.stdout
    found = json.loads(ffnprobe("search", "golf", "--top", "9", "--format", "json", *where).stdout)
    assert [row["label"] for row in found["rows"] if row["name"] == "L0N3"] == ["numbers"]
    several = json.loads(ffnprobe("read", "L0", "--format", "json", *where).stdout)
    assert several["rows"][NEURONS["dead"]]["label"] == "dead"
    page = tmp_path / "why.html"
    explained = ffnprobe(
        "explain", "ba be golf", "ka", "--top", "5", *where, "--format", "json", "--html", str(page)
    )
    assert explained.exit_code == 0, explained.stderr
    rows = json.loads(explained.stdout)["neurons"]
    by_name = {row["name"]: row for row in rows}
    assert all("label_f1" in row for row in rows)
    assert by_name["L0N0"]["label"].startswith(f'"{TARGET}"')
    assert f"&quot;{TARGET}&quot;" in page.read_text()


def test_figures_say_what_is_seen(planted, labelled, surveyed):
    roles = fp.plot(surveyed, "roles")
    assert "L0 erases most (11%)" in roles.layout.title.text
    labels = fp.label(planted, labelled)
    assert "56% of the neurons are explained" in fp.plot(labels).layout.title.text
    assert "of its ten tokens likelier" in fp.plot(labels, "outputs").layout.title.text

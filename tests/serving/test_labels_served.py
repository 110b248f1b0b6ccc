"""Circuits, labels and served scans through the tools."""

from shutil import copytree

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.labels.stored_labels import embedded_labels
from ffnprobe.serving.budgets import Budget
from ffnprobe.serving.protocol import list_pages
from ffnprobe.serving.service import ServedModels, Service
from tests.conftest import JORDAN
from tests.labels.conftest import NEURONS, TARGET
from tests.labels.conftest import planted as planted  # fixtures of the planted model
from tests.labels.conftest import store as store
from tests.labels.conftest import words as words
from tests.serving.test_tools import ANSWER, ask


def column(answer, name):
    return [row[answer["columns"].index(name)] for row in answer["rows"]]


@pytest.fixture(scope="module")
def labelled(planted, store, tmp_path_factory):
    folder = copytree(store, tmp_path_factory.mktemp("served") / "scan")
    fp.label(planted, folder)
    return folder


@pytest.fixture(scope="module")
def served(planted, labelled):
    models = ServedModels([planted.source.where, "pocket"], device="cpu", most_bytes=2**31)
    return Service(models, scans=[fp.Scan.open(labelled)])


@pytest.fixture(scope="module")
def unlabelled(planted, store):
    models = ServedModels([planted.source.where], device="cpu", most_bytes=2**31)
    return Service(models, scans=[fp.Scan.open(store)])


def test_a_circuit_has_the_same_numbers_as_the_verb(service, pocket):
    answer = ask(service, "circuit", prompt=JORDAN, answer=ANSWER, keep=7, rows=200)
    model = fp.load("pocket", device="cpu")
    found = fp.circuit(model, JORDAN, ANSWER, keep=7)
    assert column(answer, "name") == found.table.name.tolist()
    assert column(answer, "influence") == pytest.approx(found.table.influence.tolist(), rel=1e-4)
    assert set(answer["more_tables"]) == {"nodes", "edges", "accounts"}
    assert any("7 neurons kept" in note for note in answer["notes"])
    edges = service.more({"cursor": answer["more_tables"]["edges"]["cursor"], "rows": 200})
    assert edges["rows_in_all"] == len(found.edges())


def test_a_circuit_about_the_subject_without_an_answer(service):
    answer = ask(service, "circuit", prompt=JORDAN, contrast_from="pocket", keep=5)
    assert answer["provenance"]["answer"] == "␣basketball"
    assert answer["provenance"]["settings"]["rule"] == "rescale"


def test_labels_in_the_package_are_read(service, pocket):
    known = embedded_labels(pocket)
    answer = ask(service, "label", neurons=["L3N361", "L0N3"])
    assert column(answer, "label") == [known.of(name).label for name in ("L3N361", "L0N3")]
    assert column(answer, "f1") == pytest.approx([known.of("L3N361").f1, known.of("L0N3").f1], rel=1e-4)  # fmt: skip
    summary = ask(service, "label")
    assert summary["table"] == "layers"
    assert sum(column(summary, "neurons")) == pocket.config.neurons
    assert summary["notes"] == [known.summary]


def test_read_search_and_explain_show_labels(service, pocket):
    known = embedded_labels(pocket)
    for tool, arguments in (
        ("read", {"neurons": ["L3N361"]}),
        ("search", {"tokens": [ANSWER]}),
        ("explain", {"prompt": JORDAN, "answer": ANSWER, "effects": False}),
    ):
        answer = ask(service, tool, **arguments)
        for name, text in zip(column(answer, "name"), column(answer, "label"), strict=True):
            assert text == known.of(name).label, tool
        assert all(column(answer, "label_f1")), tool


def test_a_served_scan_labels_its_own_model_and_no_other(served, pocket):
    mine, name = served.models.default, f"L0N{NEURONS['token']}"
    assert column(ask(served, "label", neurons=[name]), "opens") == [f'"{TARGET}"']
    read = ask(served, "read", neurons=["L0"])
    assert column(read, "label")[NEURONS["dead"]] == "dead"
    few = ask(served, "read", neurons=[name])
    assert few["more_tables"]["examples"]["rows"] > 0
    found = ask(served, "search", tokens=[TARGET], top=9)
    assert set(column(found, "label")) == set(column(read, "label"))
    explained = ask(served, "explain", prompt="ba be golf", answer="ka", top=5)
    assert "strongest_example" in explained["columns"]
    other = ask(served, "label", model="pocket", neurons=["L3N361"])
    assert other["provenance"]["model"] == "pocket" != mine
    assert column(other, "label") == [embedded_labels(pocket).of("L3N361").label]


def test_the_survey_of_a_model_with_a_scan_has_roles_and_labels(served, tmp_path):
    address = f"ffnprobe://models/{served.models.default}/survey.parquet"
    page = next(each for each in list_pages(served) if each.uri == address)
    data = page.make(Budget(60))
    (tmp_path / "survey.parquet").write_bytes(data)
    table = fp.open_result(tmp_path / "survey.parquet").table
    assert table.corpus_role[NEURONS["position"]] == "positional"
    assert table.label[NEURONS["number"]] == "numbers"


def test_without_labels_named_neurons_are_labelled_and_nothing_is_kept(unlabelled, store):
    before = {path.name for path in store.iterdir()}
    answer = ask(unlabelled, "label", neurons=[f"L0N{NEURONS['token']}"], least=0.2)
    assert column(answer, "opens") == [f'"{TARGET}"']
    assert answer["provenance"]["settings"]["least"] == 0.2
    assert {path.name for path in store.iterdir()} == before
    with pytest.raises(DataRefused, match="name neurons, or first ffnprobe label"):
        ask(unlabelled, "label")
    assert "label" not in ask(unlabelled, "read", neurons=["L0N0"])["columns"]


def test_without_a_scan_it_says_how_to_serve_one(planted):
    bare = Service(ServedModels([planted.source.where], device="cpu", most_bytes=2**31))
    with pytest.raises(DataRefused, match=r"no scan of .* is served, so there are no labels"):
        ask(bare, "label", neurons=["L0N0"])

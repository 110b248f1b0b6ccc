"""A neuron's label is shown on its page and in searches, and is exported with both."""

import pytest

from ffnprobe.labels.stored_labels import embedded_labels
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.exports import Live
from ffnprobe.views.explorer.server import gather
from ffnprobe.views.explorer.session import Session
from tests.explorer.client import Client
from tests.explorer.conftest import running

NAME = "L3N361"


@pytest.fixture(scope="module")
def known(pocket):
    return embedded_labels(pocket).of(NAME)


@pytest.fixture(scope="module")
def labelled(pocket):
    return Session(pocket)


def test_a_page_shows_the_label_with_its_score(labelled, known):
    words = known.label.partition(" → ")[2]
    with running(labelled) as address:
        client = Client(address)
        assert f"{words} (F1 {known.f1:.2f}" in client.page(f"/neuron/{NAME}", "")
        assert words in client.page("/search", "?token= basketball")


def test_an_export_holds_the_label(labelled, known):
    card = gather(labelled, Address(f"/neuron/{NAME}", ()), Live({}))
    assert card.tables["label"].label.tolist() == [known.label]
    found = gather(labelled, Address("/search", (("token", " basketball"),)), Live({}))
    rows = found.tables["search"].set_index("name")
    assert rows.label[NAME] == known.label


def test_without_labels_nothing_is_said_of_them(session):
    card = gather(session, Address(f"/neuron/{NAME}", ()), Live({}))
    assert "label" not in card.tables
    with running(session) as address:
        assert "Label:" not in Client(address).page(f"/neuron/{NAME}", "")

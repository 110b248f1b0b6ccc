"""What a page shows can be exported, and its recipe gives the same."""

from dataclasses import replace
from typing import Any

import pytest

import ffnprobe as fp
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.exports import Live, write
from ffnprobe.views.explorer.server import gather
from ffnprobe.views.explorer.session import Session
from tests.conftest import JORDAN
from tests.explorer.client import Client
from tests.explorer.conftest import running
from tests.families.builders import write_family


@pytest.mark.parametrize(
    ("path", "search", "live", "tables", "command"),
    [
        ("/", {}, {"temperature": 2}, {"predictions"}, "ffnprobe run --model pocket --temperature=2 -- 'Michael"),
        ("/", {"after": "L1"}, {}, {"predictions", "lens"}, "ffnprobe run --model pocket -- 'Michael"),
        ("/neuron/L3N12", {}, {}, {"rows", "tokens", "examples", "feeds", "fed_by", "similar", "prompt"}, "ffnprobe read --model pocket -- L3N12"),
        ("/neuron/L3N12", {}, {"set": 4.0, "generate": 3}, {"predictions", "texts"}, "ffnprobe steer --model pocket --set=L3N12=4 --generate=3 -- 'Michael"),
        ("/search", {"token": " golf", "rank": "dot", "layers": "1"}, {}, {"search"}, "ffnprobe search --model pocket --rank=dot --top=20 --layers=1 -- ' golf'"),
        ("/facts", {"relation": "sport"}, {}, {"facts"}, None),
    ],
)  # fmt: skip
def test_what_is_on_the_screen_can_be_exported(session, tmp_path, path, search, live, tables, command):  # fmt: skip
    address = Address(path, tuple({"prompt": JORDAN, **search}.items()))
    export = gather(session, address, Live(live))
    assert tables <= set(export.tables)
    assert export.recipe.command == command or export.recipe.command.startswith(command)
    name = sorted(tables)[0]
    for suffix in (".csv", ".parquet"):
        (tmp_path / f"x{suffix}").write_bytes(write(export, suffix, name))
        read = fp.open_result(tmp_path / f"x{suffix}").table
        assert list(read.columns) == list(export.tables[name].columns)
        assert read.attrs["provenance"]["model"] == "pocket"
    page = write(export, ".html", None).decode()
    assert page.startswith("<!doctype html>")
    compile(export.recipe.python, "recipe", "exec")


def test_a_recipe_says_that_the_hooks_ran(pocket):
    session = Session(replace(pocket, hooks=True))
    export = gather(session, Address("/", (("prompt", JORDAN),)), Live({}))
    assert export.recipe.command.startswith("ffnprobe run --model pocket --hooks -- 'Michael")


def test_the_python_of_a_recipe_gives_the_same(session):
    address = Address("/neuron/L0N378", (("prompt", JORDAN),))
    export = gather(session, address, Live({"set": -2.0}))
    made: dict[str, Any] = {}
    exec(compile(export.recipe.python, "recipe", "exec"), made)
    chances = made["found"].table.probability_after.tolist()
    assert chances == pytest.approx(export.tables["predictions"].probability_after.tolist())


def test_a_gated_neuron_is_shown_with_its_gate(tmp_path):
    model = fp.load(write_family(tmp_path, "llama"), device="cpu")
    with running(Session(model)) as address:
        client = Client(address)
        page = client.page("/neuron/L1N3", "?prompt=the cat sat on the&answer= basketball")
        for words in ("gate opens on", "question opens on", "Its answer feeds the gates of",
                      "Its gate is fed by the answers of", "gate score"):  # fmt: skip
            assert words in page, words
        found = client.page("/search", "?token= basketball&by=gate")
        assert "gate tokens" in found

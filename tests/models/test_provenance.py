"""A provenance is data: it comes back from every format as it was, whatever it holds."""

import json

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.sources import Source
from ffnprobe.results import as_result, check_alike

HOSTILE = (
    "=1+1", "a\nb", "a, b: c", '"quoted"', "\\u003d", "", " ", "\0", "\u2028", "# x: y", "null", "007",
    "<script>", "{}", "half \udc80 a character",
)  # fmt: skip


def known(text: str) -> fp.Provenance:
    return fp.Provenance(
        text,
        Source("folder", text, text),
        "f" * 32,
        convention="centred",
        bos=False,
        prompt=text,
        tokens=("a b", text, "\\u0020", "="),
        position=0,
        answer=text,
        versus=text,
        run_by=text,
        settings={
            text: text,
            "number": 0.1 + 0.2,
            "count": 3,
            "is": True,
            "none": None,
            "list": [text, 1, [2.5]],
            "mapping": {text: {text: -1}},
        },
    )


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_hostile_values_come_back_from_every_format(text, suffix, tmp_path):
    provenance, path = known(text), tmp_path / f"x.{suffix}"
    table = provenance.note(pd.DataFrame({"layer": [1, 2]}))
    fp.save(table, path)
    found = fp.open_result(path)
    assert found.provenance == provenance
    assert found.table.attrs["provenance"] == provenance.as_dict()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("suffix", ["md", "html"])
def test_hostile_values_can_be_written_for_people(text, suffix, tmp_path):
    fp.save(known(text).note(pd.DataFrame({"layer": [1]})), tmp_path / f"x.{suffix}")
    assert b"<script>\n" not in (tmp_path / f"x.{suffix}").read_bytes().split(b"</h1>")[0]
    assert all("\n" not in line for line in known(text).as_lines())


def test_what_is_not_known_is_not_written():
    bare = fp.Provenance("m", Source("hub", "owner/m"), "f" * 32)
    assert list(bare.as_dict()) == ["model", "source", "fingerprint", "version"]
    assert fp.Provenance.from_dict(json.loads(json.dumps(bare.as_dict()))) == bare


def test_settings_are_added_not_changed():
    first = known("x")
    second = first.including(seed=3, count=4)
    assert (second.settings["seed"], second.settings["count"], first.settings["count"]) == (3, 4, 3)
    assert second.settings["mapping"] == first.settings["mapping"]


def test_settings_become_words_only_when_described():
    one = fp.Provenance(
        "m", Source("embedded", "/x"), "f", settings={"set": {"L1N2": 4.0}, "at_layers": [1, 2]}
    )
    assert one.describe() == "set L1N2=4, at layers 1 2"
    assert "source: embedded" in one.as_lines()


def test_two_questions_conventions_or_settings_are_not_put_side_by_side():
    one = known("x")
    check_alike(one, known("x"), among=("number",))
    with pytest.raises(OptionRefused) as refused:
        check_alike(one, one.including(number=1), among=("number",), naming="the two maps")
    assert str(refused.value) == (
        "the two maps differ in their number: 0.30000000000000004 and 1.\n"
        "  try: make both with the same number"
    )
    check_alike(one, one.including(number=1))
    for field in ("fingerprint", "prompt", "answer", "versus", "convention"):
        other = fp.Provenance.from_dict(one.as_dict() | {field: "another"})
        with pytest.raises(OptionRefused, match=f"differ in their {field}: "):
            check_alike(one, other)


def test_a_table_with_a_false_provenance_is_refused():
    table = pd.DataFrame({"a": [1]})
    table.attrs["provenance"] = "folder /x"
    with pytest.raises(DataRefused, match="not a provenance that ffnprobe wrote: it is a str"):
        as_result(table)

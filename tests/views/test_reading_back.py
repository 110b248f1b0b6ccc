"""A file that is damaged, or not ours, is refused in words: no traceback, whatever is wrong with it."""

import json
import random

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused

SUFFIXES = ("csv", "json", "parquet")


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    """One survey and one result of several tables in every format that is read back."""
    folder = tmp_path_factory.mktemp("written")
    for suffix in SUFFIXES:
        for name in ("Search", "Pushes"):
            fp.save(results[name], folder / f"{name}.{suffix}")
    return folder


def test_what_is_not_a_file_of_ours_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "x.json").write_text("[1, 2]")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "d.json").mkdir()
    for suffix in SUFFIXES:
        (tmp_path / f"empty.{suffix}").write_bytes(b"")
        for name in ("x", "empty"):
            with pytest.raises(DataRefused, match=f"{name}.{suffix} is not a result that ffnprobe"):
                fp.open_result(tmp_path / f"{name}.{suffix}")
    with pytest.raises(DataRefused) as refused:
        fp.open_result(tmp_path / "x.md")
    assert str(refused.value) == (
        'a result cannot be read back from ".md" (x.md).\n  try: .csv, .json, .parquet'
    )
    for name in ("y.json", "d.json"):
        with pytest.raises(DataRefused, match="there is no file"):
            fp.open_result(tmp_path / name)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["Search", "Pushes"])
def test_a_damaged_file_ends_in_words(written, tmp_path, name, suffix):
    """Cut anywhere, or with bytes changed, a file is read or refused; nothing else is raised."""
    whole = (written / f"{name}.{suffix}").read_bytes()
    path, dice = tmp_path / f"x.{suffix}", random.Random(0)
    refused = []
    for _ in range(150):
        data = bytearray(whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else whole)
        for _ in range(dice.randrange(1, 6)):
            if data:
                data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            found = fp.open_result(path)
            assert repr(found)
            assert found._repr_html_()
        except DataRefused as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert all("or it is damaged: " in words for words in refused)
    assert all(len(words.splitlines()) == 2 for words in refused)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body.pop("provenance"), "there is no provenance"),
        (lambda body: body.pop("result"), "there is no result"),
        (lambda body: body.pop("rows"), "there is no rows"),
        (lambda body: body["provenance"].pop("source"), "it has no source"),
        (lambda body: body["provenance"].update(source={}), "does not say its kind"),
        (lambda body: body["provenance"].update(source="pocket"), "its source is 'pocket'"),
        (lambda body: body["provenance"].update(tokens="abc"), "its tokens is 'abc'"),
        (lambda body: body["provenance"].update(tokens=[1]), "its tokens are not texts"),
        (lambda body: body["provenance"].update(colour="red"), "it has a field 'colour'"),
        (lambda body: body.update(provenance=[]), "it is a list"),
        (lambda body: body["provenance"]["settings"].pop("by"), "there is no by"),
        (lambda body: body["result"].update(type=["Search"]), "the names in it are not texts"),
        (lambda body: body["result"].update(types={}), ""),
        (lambda body: body["result"]["types"]["rows"].pop("name"), "its table has no name"),
        (lambda body: body["result"]["types"]["rows"].update(layer="int7"), "int7"),
        (lambda body: body["rows"][0].pop("layer"), "there is no layer"),
        (lambda body: body["rows"][0].update(layer="seven"), "seven"),
        (lambda body: body["rows"].append(7), ""),
    ],
)
def test_what_is_missing_is_named(written, tmp_path, change, said):
    body = json.loads((written / "Search.json").read_text())
    change(body)
    (tmp_path / "x.json").write_text(json.dumps(body))
    with pytest.raises(DataRefused, match="or it is damaged: ") as refused:
        fp.open_result(tmp_path / "x.json")
    assert said in refused.value.what

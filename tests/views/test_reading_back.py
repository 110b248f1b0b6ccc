"""A file that was changed, or is not ours, is refused in words: no traceback, whatever is wrong with it."""

import json
import random
import re
import struct
from dataclasses import replace

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from ffnprobe.files import BLANK
from tests.cli.runner import ffnprobe

SUFFIXES = ("csv", "json", "parquet")
CHECKSUM = re.compile(rb', ""checksum"": ""xxh3:[0-9a-f]{32}""')


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
    for name, why in (("y.json", "there is no file"), ("d.json", "is a folder; ffnprobe reads")):
        with pytest.raises(DataRefused, match=why):
            fp.open_result(tmp_path / name)


def change_once(data, dice):
    """Flip a bit, write a byte, cut the end, leave out a piece, repeat one, or swap two."""
    first, second, third = sorted(dice.randrange(len(data)) for _ in range(3))
    flipped = data[first] ^ 1 << dice.randrange(8)
    return dice.choice(
        [
            data[:first] + bytes([flipped]) + data[first + 1 :],
            data[:first] + dice.randbytes(1) + data[first + 1 :],
            data[:first],
            data[:first] + data[second:],
            data[:second] + data[first:],
            data[:first] + data[second:third] + data[first:second] + data[third:],
        ]
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["Search", "Pushes"])
def test_every_change_is_noticed(written, tmp_path, name, suffix):
    whole = (written / f"{name}.{suffix}").read_bytes()
    path, dice = tmp_path / f"x.{suffix}", random.Random(0)
    changed = {change_once(whole, dice) for _ in range(230)} - {whole}
    assert len(changed) >= 200
    for data in changed:
        path.write_bytes(data)
        with pytest.raises(DataRefused, match=r"has been changed since|or it is damaged: "):
            fp.open_result(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_bit_of_the_checksum_and_of_its_name_counts(written, tmp_path, suffix):
    whole = (written / f"Search.{suffix}").read_bytes()
    path, begin = tmp_path / f"x.{suffix}", whole.index(b"xxh3:") - 20
    for place in range(begin, begin + 65):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            path.write_bytes(data)
            with pytest.raises(DataRefused):
                fp.open_result(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_edited_number_is_refused_and_can_be_read_as_not_verified(results, tmp_path, suffix):
    search, path, again = results["Search"], tmp_path / f"x.{suffix}", tmp_path / f"again.{suffix}"
    fp.save(search, path)
    assert fp.open_result(path).provenance == search.provenance
    write = (lambda z: struct.pack("<d", z)) if suffix == "parquet" else (lambda z: str(z).encode())
    path.write_bytes(path.read_bytes().replace(write(search.table.z[0]), write(1234.5)))
    with pytest.raises(DataRefused) as refused:
        fp.open_result(path)
    assert str(refused.value) == (
        f"{path} has been changed since it was written: edited, damaged, or saved again by another program.\n"
        "  try: open_result(path, verify=False) reads it as it is"
    )
    found = fp.open_result(path, verify=False)
    assert found.table.z[0] == 1234.5
    assert found.provenance.verified is False
    assert "not verified" in found.provenance.as_lines()[-1]
    fp.save(found, again)
    for kept in (fp.open_result(again), fp.open_result(again, verify=False)):
        assert kept.provenance == found.provenance
        assert kept.table.attrs["provenance"]["verified"] is False
    with pytest.raises(OptionRefused, match="verify = 'no'"):
        fp.open_result(path, verify="no")


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
            found = fp.open_result(path, verify=False)
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
        fp.open_result(tmp_path / "x.json", verify=False)
    assert said in refused.value.what


def test_a_csv_without_its_checksum_is_read_as_not_verified(results, tmp_path):
    path = tmp_path / "x.csv"
    fp.save(results["Search"], path)
    whole = path.read_bytes()
    path.write_bytes(CHECKSUM.sub(b"", whole))
    found = fp.open_result(path)
    pd.testing.assert_frame_equal(found.table, results["Search"].table, check_exact=True)
    assert found.provenance == replace(results["Search"].provenance, verified=False)
    for old, new, why in (
        (b"xxh3:", b"xxh4:", "no checksum that can be read"),
        (b'""checksum"": ""xxh3:', b'""checkzum"": ""xxh4:', "a field 'checkzum'"),
    ):
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(DataRefused, match=why):
            fp.open_result(path)


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_json_or_parquet_whose_checksum_is_overwritten_is_read_only_if_asked_for(
    written, tmp_path, suffix
):
    path = tmp_path / f"x.{suffix}"
    whole = (written / f"Search.{suffix}").read_bytes()
    path.write_bytes(re.sub(rb"xxh3:[0-9a-f]{32}", b"removed".ljust(37), whole))
    with pytest.raises(DataRefused, match=r"no checksum that can be read\.") as refused:
        fp.open_result(path)
    assert refused.value.remedy == "open_result(path, verify=False) reads it as it is"
    assert fp.open_result(path, verify=False).provenance.verified is False


def test_a_csv_that_a_spreadsheet_saved_is_read_as_it_is(tmp_path, results):
    known = results["Search"].provenance
    table = known.note(pd.DataFrame({"name": ["L0N1", "L0N2"], "is_new": [True, False]}))
    fp.save(table, tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text(encoding="utf-8")
    text = text.replace("True", "TRUE").replace("False", "FALSE") + '"L0N3",TRUE,""\n'
    (tmp_path / "x.csv").write_text(text, encoding="utf-8-sig", newline="\r\n")
    with pytest.raises(DataRefused, match="has been changed since it was written"):
        fp.open_result(tmp_path / "x.csv")
    found = fp.open_result(tmp_path / "x.csv", verify=False).table
    assert found.to_dict("list") == {
        "name": ["L0N1", "L0N2", "L0N3"], "is_new": [True, False, True],
    }  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_the_same_every_time_and_has_one_checksum(results, tmp_path, suffix):
    for name, result in results.items():
        paths = [tmp_path / f"{name}{n}.{suffix}" for n in (1, 2)]
        for path in paths:
            fp.save(result, path)
        first, second = (path.read_bytes() for path in paths)
        assert first == second
        assert len(re.findall(rb"xxh3:[0-9a-f]{32}", first)) == 1
        assert BLANK not in first


def test_a_text_that_reads_like_an_empty_checksum_is_refused(results, tmp_path):
    table = results["Search"].table.assign(promotes=BLANK.decode())
    for suffix in SUFFIXES:
        with pytest.raises(FileNotWritten, match="as an empty checksum does"):
            fp.save(fp.Search(table, results["Search"].provenance), tmp_path / f"x.{suffix}")


def test_pandas_alone_reads_a_csv_with_a_checksum(results, tmp_path):
    table = results["Search"].table
    fp.save(table, tmp_path / "x.csv")
    found = pd.read_csv(tmp_path / "x.csv")
    assert found.columns[-1] == "provenance"
    numbers = table.select_dtypes("number")
    pd.testing.assert_frame_equal(found[numbers.columns], numbers)


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_what_a_command_prints_has_no_checksum_and_is_not_verified(tmp_path, suffix):
    path, words = tmp_path / f"printed.{suffix}", ("search", " golf", "--top", "3")
    printed = ffnprobe(*words, "--format", suffix).stdout
    assert "checksum" not in printed
    path.write_text(printed, encoding="utf-8", newline="")
    assert fp.open_result(path).provenance.verified is False
    # The word itself changed is a field that nobody knows.
    fp.save(fp.open_result(path), path)
    path.write_bytes(
        path.read_bytes().replace(b"checksum", b"chegksum").replace(b"xxh3:", b"xxh4:")
    )
    with pytest.raises(DataRefused, match="has a field 'chegksum'"):
        fp.open_result(path)

"""Every result in every format and back, with its provenance, whole or not at all."""

import errno
import json
import os
from html import unescape

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.views.files.reader import read_table
from ffnprobe.views.results import as_result
from tests.views.results import every_result

NAMES = (
    "Trace", "Lens", "Stages", "Similarity", "Drivers", "Pushes", "PushesByPiece", "Comparison", "Effects",
    "LayerEffects", "GroupEffects", "Estimates", "Patches", "LayerPatches", "Steering", "Reading",
    "Readings", "Related", "Explanation", "survey", "search",
)  # fmt: skip


def test_every_result_type_is_here(results):
    assert set(results) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_saved_table_reads_back(results, name, suffix, tmp_path):
    path = tmp_path / f"file.{suffix}"
    fp.save(results[name], path)
    known = as_result(results[name])
    table = next(t for t in known.tables().values())
    found = read_table(path)
    # json has numbers, but no word for how wide they are.
    pd.testing.assert_frame_equal(found, table, check_dtype=suffix != "json", check_exact=True)
    assert found.attrs["provenance"] == known.provenance.as_dict()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_every_table(results, name, tmp_path):
    fp.save(results[name], tmp_path / "file.json")
    tables = as_result(results[name]).tables()
    found = json.loads((tmp_path / "file.json").read_text())
    assert list(found) == ["provenance", *(["rows"] if len(tables) == 1 else tables)]
    for key, table in zip(list(found)[1:], tables.values(), strict=True):
        assert len(found[key]) == len(table)


@pytest.mark.parametrize("name", NAMES)
def test_md_and_html_show_every_cell_and_the_provenance(results, name, tmp_path):
    for suffix in ("md", "html"):
        fp.save(results[name], tmp_path / f"file.{suffix}")
    md, html = (
        unescape((tmp_path / f"file.{suffix}").read_text(encoding="utf-8").partition("<script>")[0])
        for suffix in ("md", "html")
    )
    known = as_result(results[name])
    for table in known.tables().values():
        for row in table.itertuples(index=False):
            texts = [str(value) for value in row if isinstance(value, str) and value]
            assert all(text in md for text in texts)
            if name != "Explanation":
                assert all(text in html for text in texts)
    for page in (md, html):
        assert known.provenance.fingerprint in page


def test_hostile_tokens_read_back_from_every_format(hostile_results, tmp_path):
    for name, result in hostile_results.items():
        for suffix in ("csv", "json", "parquet"):
            path = tmp_path / f"{name}.{suffix}"
            fp.save(result, path)
            known = as_result(result)
            table = next(iter(known.tables().values()))
            found = read_table(path)
            pd.testing.assert_frame_equal(found, table, check_dtype=suffix != "json")
            assert found.attrs["provenance"] == known.provenance.as_dict()


def test_a_table_taken_from_a_result_knows_where_it_comes_from(results, tmp_path):
    pushes = results["Pushes"]
    for table in (pushes.top(30), pushes.by_part(), results["Effects"].against(3),
                  results["Trace"].fired(k=4), results["Reading"].answer.promotes(3)):  # fmt: skip
        fp.save(table, tmp_path / "t.parquet")
        found = read_table(tmp_path / "t.parquet")
        assert len(found) == len(table)
        assert found.attrs["provenance"]["model"] == pushes.provenance.model
    with pytest.raises(DataRefused, match="this table has no provenance"):
        fp.save(pd.DataFrame({"a": [1]}), tmp_path / "t.csv")
    with pytest.raises(DataRefused, match="list is not a result of ffnprobe"):
        fp.save([1, 2], tmp_path / "t.csv")


def test_an_unknown_suffix_lists_the_known(results, tmp_path):
    with pytest.raises(FileNotWritten) as refused:
        fp.save(results["Trace"], tmp_path / "x.xlsx")
    assert str(refused.value) == (
        '".xlsx" is not a format for results (x.xlsx).\n  try: .csv, .json, .parquet, .md, .html'
    )


def test_a_folder_that_is_not_there(results, tmp_path):
    with pytest.raises(FileNotWritten, match="there is no folder"):
        fp.save(results["Trace"], tmp_path / "no" / "x.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileNotWritten, match="is a folder"):
        fp.save(results["Trace"], tmp_path / "d.csv")


def test_a_folder_that_cannot_be_written(results, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileNotWritten, match="cannot be written to"):
        fp.save(results["Trace"], tmp_path / "x.csv")


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "md", "html"])
def test_a_full_disk_leaves_the_old_file_as_it_was(results, tmp_path, monkeypatch, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_text("old")
    real = os.fdopen

    def fill(number, mode):
        file = real(number, mode)
        write = file.write

        def half(data):
            write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def write(self, data):
                half(data)

        return Full()

    monkeypatch.setattr(os, "fdopen", fill)
    with pytest.raises(FileNotWritten, match="No space left on device"):
        fp.save(results["Trace"], path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_an_empty_result_is_refused(results, tmp_path):
    empty = results["survey"][:0]
    with pytest.raises(FileNotWritten, match="the result is empty"):
        fp.save(empty, tmp_path / "x.csv")
    assert os.listdir(tmp_path) == []
    with pytest.raises(DataRefused, match="nothing to draw"):
        fp.plot(empty)


def test_what_is_no_file_of_ours_is_not_read(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataRefused, match="not a table that ffnprobe wrote"):
        read_table(tmp_path / "x.csv")
    with pytest.raises(DataRefused, match="cannot be read back"):
        read_table(tmp_path / "x.md")
    with pytest.raises(DataRefused, match="there is no file"):
        read_table(tmp_path / "y.json")


def test_a_named_table_is_read_from_json(results, tmp_path):
    fp.save(results["Pushes"], tmp_path / "p.json")
    layers = read_table(tmp_path / "p.json", "layers")
    assert layers["push"].tolist() == results["Pushes"].by_layer()["push"].tolist()


def test_saving_changes_no_weight(tiny, zeros, tmp_path):
    for result in every_result(zeros, [5, 6], 7).values():
        fp.save(result, tmp_path / "z.html")
    assert zeros.is_unchanged()
    assert tiny.is_unchanged()

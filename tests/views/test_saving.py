"""Every result in every format and back, with its provenance, whole or not at all."""

import errno
import json
import os
from html import unescape

import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.models.sources import Source
from ffnprobe.results import as_result
from ffnprobe.serving.tools import Answers, Found
from ffnprobe.views.saving import FILES, to_md
from tests.views.results import every_result

NAMES = sorted(
    name
    for name in fp.__all__
    if isinstance(getattr(fp, name), type) and issubclass(getattr(fp, name), fp.Result)
    if name not in ("Result", "TableSet")
)


def test_every_result_type_is_here_and_says_what_it_is(results):
    assert {name: type(result).__name__ for name, result in results.items()} == {
        n: n for n in NAMES
    }
    for name, result in results.items():
        assert repr(result) == f"{name}({result.title})"
        assert result.title
        assert "\n" not in result.title
        assert list(result.table) == list(next(iter(result.tables().values())))


def test_a_result_read_back_says_what_it_is(results, tmp_path):
    fp.save(results["Pushes"], tmp_path / "p.json")
    found = fp.open_result(tmp_path / "p.json")
    assert (type(found), found.kind) == (fp.TableSet, "Pushes")
    assert repr(found) == f"TableSet({results['Pushes'].title})"
    assert found.title in unescape(found._repr_html_())
    fp.save(found, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "p.json").read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_saved_table_reads_back(results, name, suffix, tmp_path):
    path = tmp_path / f"file.{suffix}"
    fp.save(results[name], path)
    known = as_result(results[name])
    table = next(t for t in known.tables().values())
    found = fp.open_result(path)
    pd.testing.assert_frame_equal(found.table, table, check_exact=True)
    assert found.provenance == known.provenance
    assert found.table.attrs["provenance"] == known.provenance.as_dict()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_every_table(results, name, tmp_path):
    fp.save(results[name], tmp_path / "file.json")
    tables = as_result(results[name]).tables()
    found = json.loads((tmp_path / "file.json").read_text())
    names = ["rows"] if len(tables) == 1 else tables
    assert list(found) == ["checksum", "provenance", "result", *names]
    opened = fp.open_result(tmp_path / "file.json")
    assert list(opened.tables()) == list(tables)
    assert opened.title == as_result(results[name]).title
    for table, known in zip(opened.tables().values(), tables.values(), strict=True):
        pd.testing.assert_frame_equal(table, known, check_exact=True)


@pytest.mark.parametrize(("name", "kind"), [("Survey", fp.Survey), ("Search", fp.Search)])
@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_survey_and_a_search_are_read_back_as_such(results, name, kind, suffix, tmp_path):
    fp.save(results[name], tmp_path / f"x.{suffix}")
    found = fp.open_result(tmp_path / f"x.{suffix}")
    assert type(found) is kind
    assert fp.plot(found).layout.title.text == fp.plot(results[name]).layout.title.text


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
            found = fp.open_result(path)
            pd.testing.assert_frame_equal(found.table, table)
            assert found.provenance == known.provenance


def test_a_table_taken_from_a_result_knows_where_it_comes_from(results, tmp_path):
    pushes = results["Pushes"]
    for table in (pushes.top(30), pushes.by_part(), results["Effects"].against(3),
                  results["Trace"].fired(top=4), results["Reading"].answer.promotes(3)):  # fmt: skip
        fp.save(table, tmp_path / "t.parquet")
        found = fp.open_result(tmp_path / "t.parquet")
        assert len(found.table) == len(table)
        assert found.provenance.model == pushes.provenance.model
    with pytest.raises(DataRefused, match="does not say where its numbers come from"):
        fp.save(pd.DataFrame({"a": [1]}), tmp_path / "t.csv")
    with pytest.raises(DataRefused, match="list is not a result of ffnprobe"):
        fp.save([1, 2], tmp_path / "t.csv")


def test_an_unknown_suffix_lists_the_known(results, tmp_path):
    with pytest.raises(FileNotWritten) as refused:
        fp.save(results["Trace"], tmp_path / "x.xlsx")
    assert str(refused.value) == (
        '".xlsx" is not a format that results are written in (x.xlsx).\n'
        "  try: .csv, .json, .jsonl, .parquet, .md, .html"
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
    survey = results["Survey"]
    empty = fp.Survey(survey.table[:0], survey.provenance)
    with pytest.raises(FileNotWritten, match="the result is empty"):
        fp.save(empty, tmp_path / "x.csv")
    assert os.listdir(tmp_path) == []
    with pytest.raises(DataRefused, match="nothing to draw"):
        fp.plot(empty)


def test_a_named_table_is_read_from_json(results, tmp_path):
    fp.save(results["Pushes"], tmp_path / "p.json")
    layers = fp.open_result(tmp_path / "p.json").tables()["layers"]
    assert layers["push"].tolist() == results["Pushes"].by_layer()["push"].tolist()


def test_saving_changes_no_weight(tiny, zeros, tmp_path):
    for result in every_result(zeros, [5, 6], 7).values():
        fp.save(result, tmp_path / "z.html")
    assert zeros.is_unchanged()
    assert tiny.is_unchanged()


def test_a_table_without_a_row_keeps_its_columns_and_types_in_json(tmp_path):
    known = fp.Provenance("m", Source("folder", "/a"), "f" * 32)
    empty, full = pd.DataFrame({"name": ["x"], "push": [0.5]})[:0], pd.DataFrame({"a": [1]})
    path = tmp_path / "empty.json"
    for named in ({"neurons": empty}, {"full": full, "neurons": empty}):
        path.write_bytes(FILES[".json"](fp.TableSet("tables", named, known)))
        found = fp.open_result(path).tables()
        assert list(found) == list(named)
        for name, table in named.items():
            pd.testing.assert_frame_equal(found[name], table, check_index_type=False)


def test_a_bar_in_a_heading_does_not_end_a_column():
    table = pd.DataFrame({"a|b": [1], "log_probability": [2.0]})
    known = fp.Provenance("m", Source("folder", "/a"), "f" * 32)
    head, rule, *_ = to_md(fp.TableSet("t", {"t": table}, known)).splitlines()
    assert head == "| a&#124;b | log_probability |"
    assert head.count("|") == rule.count("|") == 3


def test_missing_and_infinite_numbers_are_null_in_json_and_in_an_answer(tmp_path):
    known = fp.Provenance("m", Source("folder", "/a"), "f" * 32)
    numbers = [0.5, float("nan"), float("inf"), -float("inf")]
    held = fp.TableSet("t", {"rows": pd.DataFrame({"push": numbers})}, known)
    fp.save(held, tmp_path / "t.json")
    fp.save(held, tmp_path / "t.jsonl")
    listed = json.loads((tmp_path / "t.json").read_text())["rows"]
    lines = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    answer = Answers().write(Found(held, held.named), grade="none", rows=4)
    wanted = [0.5, None, None, None]
    assert [row["push"] for row in listed] == wanted
    assert [row["push"] for row in lines] == wanted
    assert [push for (push,) in answer["rows"]] == wanted

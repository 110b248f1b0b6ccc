"""csv: nothing is executed, everything comes back, with our reader and with pandas alone."""

import csv
import io

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from ffnprobe.models.sources import Source
from ffnprobe.models.vocab import show_bytes
from ffnprobe.provenance import Provenance
from ffnprobe.results import TableSet
from ffnprobe.views.csv_format import UNGUARD, guard, read_csv, unguard, write_csv

STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
NASTY = [
    "=1+1", "+1", "-1", "@x", "'", "''", "null", "NA", "nan", "NaN", "None", "n/a", "", "true", "1e5", "007",
    ".5", "a,b", 'a"b', "a\nb", "a\tb", " a", "a ", "#", "# x", "x;=1", "x;'=1", 'x; "=1', "x|@;\t+", "x\n=1", "\u2028", "⟨E2⟩", "␣=", " =1", "\n=1",
]  # fmt: skip
texts = st.lists(
    st.one_of(
        st.sampled_from(NASTY),
        st.binary(min_size=1, max_size=6).map(show_bytes),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    min_size=1,
    max_size=6,
)


def known(prompt: str = "x", tokens: tuple[str, ...] = ("x",)) -> Provenance:
    return Provenance(
        "m", Source("folder", "/a b"), "f" * 32, bos=True, prompt=prompt, tokens=tokens, position=3
    )


def table_of(cells: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "=z of +": [n / 3 for n in range(len(cells))],
            "token": pd.Series(cells, dtype="str"),
            "layer": pd.array([None if n % 2 else n for n in range(len(cells))], dtype="Int64"),
        }
    )


def write(table: pd.DataFrame, provenance: Provenance) -> str:
    return write_csv(TableSet("t", {"rows": table}, provenance))


@settings(deadline=None, max_examples=60)
@given(texts)
def test_a_text_that_is_guarded_is_given_back(cells):
    assert [unguard(guard(cell)) for cell in cells] == cells


@settings(deadline=None, max_examples=60)
@given(texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_our_reader_gives_the_table_back(cells, prompt):
    table, provenance = table_of(cells), known(prompt, ("a b", "=", "\\u0020", prompt or "x"))
    found, read = read_csv(write(table, provenance))
    pd.testing.assert_frame_equal(found, table, check_exact=True)
    assert read == provenance.as_dict()
    assert Provenance.from_dict(read) == provenance


@settings(deadline=None, max_examples=60)
@given(texts)
def test_pandas_alone_gives_the_table_back(cells):
    table = table_of([cell or "x" for cell in cells])
    written = io.StringIO(write(table, known()), newline="")
    found = pd.read_csv(written).drop(columns="provenance").replace(UNGUARD, "", regex=True)
    found.columns = found.columns.str.removeprefix("'")
    pd.testing.assert_frame_equal(found, table, check_dtype=False)
    assert found["token"].tolist() == table["token"].tolist()


@settings(deadline=None, max_examples=60)
@given(texts, st.sampled_from(NASTY), st.sampled_from(",;\t|"))
def test_no_cell_begins_a_formula_however_the_file_is_cut(cells, prompt, comma):
    written = write(table_of(cells), known(f"a,{prompt};{prompt}|{prompt} {prompt}", tuple(NASTY)))
    for row in csv.reader(io.StringIO(written, newline=""), delimiter=comma):
        for cell in row:
            if not _is_number(cell):
                assert not cell.strip().strip("\"'").lstrip().startswith(STARTS) or cell.startswith(
                    "'"
                )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_a_missing_text_and_an_empty_one_come_back_apart():
    table = pd.DataFrame(
        {"rival": pd.Series([None, "", "NA", "x"], dtype="object"), "n": [1, 2, 3, 4]}
    )
    back, _ = read_csv(write(table, known()))
    assert back.rival.tolist() == [None, "", "NA", "x"]


def test_a_table_without_a_row_keeps_its_columns():
    table = table_of(["x"]).iloc[:0]
    back, _ = read_csv(write(table, known()))
    assert list(back.columns) == list(table.columns)
    assert len(back) == 0


def test_what_turns_the_direction_of_writing_is_written_out():
    prompt = "a\u202eb\u2066c\ufeffd\u200be"
    text = write(table_of(["x"]), known(prompt=prompt))
    assert not set(text) & set("\u202e\u2066\ufeff\u200b")
    assert "a\\u202eb" in text
    assert read_csv(text)[1]["prompt"] == prompt

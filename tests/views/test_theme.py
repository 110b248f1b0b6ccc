"""Figures: zero is white, a token is not markup, lines differ without colour."""

import plotly.graph_objects as go
import pytest

from analyses.lab.figures import plot_curves, plot_toy_stages
from analyses.lab.toy import CASES
from ffnprobe.errors import FileNotWritten
from ffnprobe.views.saving import save_figures
from ffnprobe.views.theme import COLOURS, DASHES, DIVERGING, apply_theme, heat, line_of


def test_signed_heatmaps_are_white_at_zero():
    drawn = heat([[-1.0, 3.0]], rows=["a"], columns=["b", "c"])
    assert (drawn.zmin, drawn.zmid, drawn.zmax) == (-3.0, 0.0, 3.0)
    assert dict(DIVERGING)[0.5] == "#FFFFFF"


def test_cells_hold_rounded_numbers_and_no_negative_zero():
    drawn = heat([[-0.001, 1.25]], rows=["a"], columns=["b", "c"], digits=2)
    assert [list(row) for row in drawn.text] == [["0.00", "1.25"]]


def test_tokens_are_not_markup():
    drawn = heat([[1.0]], rows=["<b>"], columns=["<|endoftext|>"])
    assert drawn.y[0] == "&lt;b&gt;"
    assert apply_theme(go.Figure(), "<i> rises").layout.title.text == "&lt;i&gt; rises"


def test_lines_differ_in_dash_where_they_differ_in_colour():
    pairs = {(line_of(n)["color"], line_of(n)["dash"]) for n in range(len(COLOURS))}
    assert len(pairs) == len(COLOURS) == len(DASHES)
    assert len({dash for _, dash in pairs}) >= 6


def test_stages_share_one_colour_scale():
    ffn, rows = CASES["mixed"]
    figure = plot_toy_stages(ffn.stages(rows))
    assert {(trace.zmin, trace.zmax) for trace in figure.data} == {(-2.46, 2.46)}
    assert figure.layout.title.text == "3 of 6 scores are below zero; after the activation 0 are"


def test_minima_are_written_on_the_curves():
    texts = [note.text for note in plot_curves().layout.annotations]
    assert "Swish: -0.278465 at -1.278465" in texts


def test_a_page_holds_its_figures_and_the_same_bytes_again(tmp_path):
    figures = [apply_theme(go.Figure(), "one"), apply_theme(go.Figure(), "two")]
    for name in ("a.html", "b.html"):
        save_figures(figures, tmp_path / name, title="A & B")
    page = (tmp_path / "a.html").read_bytes()
    assert page == (tmp_path / "b.html").read_bytes()
    assert b"<title>A &amp; B</title>" in page
    with pytest.raises(FileNotWritten, match="there is no folder"):
        save_figures(figures, tmp_path / "no" / "c.html", title="c")

"""The picture of paths: every neuron, head and source token is named; widths and colours say the push."""

import json

import pytest
from plotly.utils import PlotlyJSONEncoder

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.components import Viewport, show_blocks
from ffnprobe.views.theme import BLUE, VERMILLION
from tests.conftest import JORDAN


def texts(figure):
    return " ".join(note.text for note in figure.layout.annotations)


def test_paths_are_drawn_from_token_to_answer(jordan):
    found = fp.paths(jordan, " basketball")
    table = found.by_neuron(10)
    figure = fp.plot(found)
    for row in table.itertuples():
        assert f"{row.name}  {row.push_through_attention:+.3f}" in texts(figure)
        assert row.through in texts(figure)
        assert f">{row.token}</span>" in texts(figure)
    assert "␣basketball" in texts(figure)
    lines = figure.data[:10]
    by_push = sorted(lines, key=lambda line: float(line.text.split(": ")[1].split()[0]))
    assert by_push[-1].line.color == BLUE or by_push[0].line.color == VERMILLION
    strongest = max(table.push_through_attention.abs())
    assert max(line.line.width for line in lines) == pytest.approx(9.0)
    assert f"{strongest:.3f}" in figure.layout.title.text


def test_an_explanation_draws_its_paths(pocket, tiny):
    found = fp.explain(pocket, JORDAN, " basketball", effects=False, top=2)
    figure = fp.plot(found, "paths")
    assert found.paths.name[0] in texts(figure)
    assert len(figure.data) == len(found.paths) + found.paths.through.nunique()
    alone = fp.explain(tiny, [7], 3, top=2, bos=False, effects=False)
    with pytest.raises(OptionRefused, match="nothing went through attention"):
        fp.plot(alone, "paths")


def test_the_explorer_draws_them_too(pocket):
    found = fp.explain(pocket, JORDAN, " basketball", effects=False, top=2)
    blocks = show_blocks(found.document(), Address("/", (("prompt", JORDAN),)), Viewport())
    shown = json.dumps(blocks, cls=PlotlyJSONEncoder, ensure_ascii=False)
    assert "How it got there, through attention" in shown
    for row in found.paths.itertuples():
        assert f"{row.name}  {row.push_through_attention:+.3f}" in shown
        assert row.through in shown

"""Figures are found by the name of the result's type, and only their own file is loaded."""

import re
import subprocess
import sys
from importlib import import_module

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.results import Result
from ffnprobe.views import figures
from ffnprobe.views.figures import plot_all

ASK = """
import sys
import ffnprobe as fp
from ffnprobe.views.figures import plot_all
trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
result = {result}
result.tables()
before = set(sys.modules)
assert plot_all(result)
print(*sorted(name for name in set(sys.modules) - before if name.startswith("ffnprobe.")))
"""
FAR = ("ffnprobe.editing", "ffnprobe.circuits", "ffnprobe.facts")


def test_each_type_is_drawn_by_the_file_that_is_named_for_it():
    for file in set(figures.FILES.values()):
        import_module(f"{figures.__name__}.{file}")
    assert set(figures.DRAWN) == set(figures.FILES)
    for name, drawn in figures.DRAWN.items():
        files = {figure.draw.__module__.rpartition(".")[2] for figure in drawn.values()}
        assert files == {figures.FILES[name]}, name
        assert issubclass(getattr(fp, name), Result), name


@pytest.mark.parametrize(
    ("result", "files"),
    [
        ('fp.attribute(trace, " basketball")', {"charts", "pushes"}),
        (
            'fp.explain(trace.model, trace.prompt, " basketball", effects=False)',
            {"charts", "effects", "predictions", "pushes"},
        ),
    ],
)
def test_a_figure_loads_no_more_than_its_own_file_needs(result, files):
    asked = [sys.executable, "-c", ASK.format(result=result)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120)
    loaded = done.stdout.split()
    own = f"{figures.__name__}."
    assert {name.removeprefix(own) for name in loaded if name.startswith(own)} == files
    assert [name for name in loaded if name.startswith(FAR)] == []


def test_a_figure_that_needs_more_is_not_drawn_unasked(results):
    needing = {
        (name, figure)
        for name in figures.FILES
        for figure, found in figures.find_figures(name).items()
        if found.is_asked
    }
    assert needing == {("Trace", "neuron"), ("Effects", "pushes"), ("Scan", "histogram")}
    assert [len(plot_all(results[name])) for name, _ in sorted(needing)] == [1, 1, 2]


def test_a_type_of_the_same_name_is_not_drawn():
    with pytest.raises(DataRefused) as refused:
        fp.plot(re.match("a", "a"))
    assert str(refused.value) == (
        f"there is no figure for Match.\n  try: {', '.join(figures.FILES)}"
    )

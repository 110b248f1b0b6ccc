"""Arguments of a wrong type are refused in one line that names them, at every verb."""

import inspect
import random
import string
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, OptionRefused
from tests.builders import TEXT

VERBS = [name for name in fp.__all__ if inspect.isfunction(getattr(fp, name))]
# Not told by an annotation: any object that can be drawn or written; a type that is not imported.
UNTOLD = {
    ("plot", "result"),
    ("plot", "options"),
    ("save", "result"),
    ("show", "result"),
    ("attribute", "contrast"),
    ("batch", "options"),
}


@pytest.fixture(scope="module")
def right(tiny, tiny_trace, tmp_path_factory):
    """A right value for every argument that has no default."""
    trace = dict.fromkeys(("trace", "first", "second", "source", "target"), tiny_trace)
    words = random.Random(0).choices([*TEXT.split(), *string.printable], k=1500)
    texts = {str(start): " ".join(words[start : start + 60]) for start in range(0, 1500, 60)}
    keys = fp.scan_keys(tiny, texts, layers="1")
    edited = fp.edit(tiny, "the cat", " sat", subject="the cat", layer=1, scan=keys)
    return trace | {
        "other": tiny, "edited": edited, "circuit": fp.circuit(tiny, "the cat", " sat", keep=3),
        "folder": "gone/x", "results": [tiny_trace],
        "model": tiny, "answer": " the", "other_answer": " cat", "prompt": "the cat", "layer": 0,
        "neurons": "L0N1", "neuron": "L0N1", "tokens": " the", "texts": {"a": "the cat"},
        "facts": [fp.FactRow("the cat", " sat")], "groups": [["L0N1"]], "prompts": ["the dog sat"],
        "scan": tmp_path_factory.mktemp("scan"), "lens": None, "result": tiny_trace, "path": "gone/x.csv",
    }  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_of_every_verb_is_checked_by_name(verb, right):
    function = getattr(fp, verb)
    parameters = inspect.signature(function).parameters
    needed = {n: right[n] for n, p in parameters.items() if p.default is p.empty and n in right}
    for name in parameters:
        if (verb, name) in UNTOLD:
            continue
        with pytest.raises(OptionRefused) as refusal:
            function(**needed | {name: Odd()})
        assert refusal.value.what.startswith(f"{name} = odd: {verb} takes ")
        assert "\n" not in refusal.value.what


class Odd:
    def __repr__(self):
        return "odd"


@pytest.mark.parametrize("name", ["plot", "save"])
def test_what_is_not_a_result_is_refused_too(name, tmp_path):
    given = (5, tmp_path / "x.csv") if name == "save" else (5,)
    with pytest.raises(FfnProbeError):
        getattr(fp, name)(*given)


def test_the_words(tiny, tiny_trace):
    def said(function, *given, **named):
        with pytest.raises(OptionRefused) as refusal:
            function(*given, **named)
        return str(refusal.value)

    assert said(fp.load, 5) == "name = 5: load takes text, a path, a Module or None."
    assert said(fp.survey, None) == 'model = None: survey takes a Model.\n  try: fp.load("pocket")'
    assert said(fp.survey, tiny, top=None) == "top = None: survey takes a whole number."
    assert said(fp.survey, tiny, top=True) == "top = True: survey takes a whole number."
    assert said(fp.survey, tiny, layers=[0, "1"]) == (
        "layers = [0, '1']: survey takes text, a list of whole numbers or None."
    )
    assert said(fp.steer, tiny, "the", {"L0N1": "x"}).startswith(
        "activations = {'L0N1': 'x'}: steer takes a mapping of texts to numbers or None."
    )
    assert said(fp.attribute, tiny, " the").endswith('try: fp.run(model, "a prompt")')
    assert "contrast = 5: " in said(fp.ablate, tiny_trace, " the", contrast=5)
    assert said(fp.load, 10**6000).startswith("name = (more than 2^64): ")


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_seeds_are_bounded(tiny, seed):
    with pytest.raises(OptionRefused, match=r"seed = .*: it must be from 0 to 2\^63 - 1"):
        fp.explain(tiny, "the cat", seed=seed)
    scores = fp.score(
        tiny, [fp.FactRow("the cat", " sat", "a"), fp.FactRow("the dog", " ran", "b")]
    )
    for method in (scores.by_relation, scores.overlap):
        with pytest.raises(OptionRefused, match="seed = "):
            method(seed=seed)


def test_numbers_beyond_every_machine_are_refused(tiny):
    with pytest.raises(
        OptionRefused, match=r"top = \(more than 2\^64\): survey takes no number so"
    ):
        fp.survey(tiny, top=10**5000)


def test_what_fits_is_taken(tiny, tiny_trace):
    """Numbers of numpy, columns of a table, generators: none is turned away."""
    names = pd.Series(["L0N1", "L1N2"])
    assert len(fp.read(tiny, names)) == 2
    assert len(fp.survey(tiny, layers=np.array([0, 1]), top=np.int64(2)).table) == 104
    found = fp.ablate(tiny_trace, " the", neurons=(name for name in names), position=np.int64(-1))
    assert found.values.isfinite().sum() == 2


def test_a_missing_or_unknown_name_is_said_as_python_does(tiny):
    with pytest.raises(TypeError, match=r"survey\(\) got an unexpected keyword argument 'layrs'"):
        fp.survey(tiny, layrs=1)
    with pytest.raises(TypeError, match=r"survey\(\) missing a required argument: 'model'"):
        fp.survey()


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("moment", ["__enter__", "__exit__"])
@pytest.mark.parametrize("verb", [fp.attribute, fp.ablate])
def test_ctrl_c_while_gradients_are_switched_leaves_them_as_they_were(
    tiny_trace, verb, moment, is_on
):
    code = getattr(torch.no_grad, moment).__code__

    def press(frame, event, argument):
        """Raise as the signal does, after `no_grad` has switched, or before it switches back."""
        if frame.f_code is code:
            if moment == "__exit__":
                raise KeyboardInterrupt
            frame.f_trace_lines = False
            return press_at_the_end
        return None

    def press_at_the_end(frame, event, argument):
        if event == "return":
            raise KeyboardInterrupt
        return press_at_the_end

    before = sys.gettrace()
    with torch.set_grad_enabled(is_on):
        try:
            sys.settrace(press)
            with pytest.raises(KeyboardInterrupt):
                verb(tiny_trace, " the")
        finally:
            sys.settrace(before)
        assert torch.is_grad_enabled() == is_on


def test_a_table_is_no_list_of_prompts(tiny, tiny_trace):
    """To go through a table is to go through the names of its columns."""
    table = pd.DataFrame({"the cat sat on": ["x"], "the dog ran to": ["y"]})
    for asked in (
        lambda: fp.ablate(tiny_trace, " the", contrast=table),
        lambda: fp.attribute(tiny_trace, " the", contrast=table),
        lambda: fp.explain(tiny, "the cat sat", contrast=table),
        lambda: fp.contrast_with(tiny_trace, " the", table),
    ):
        with pytest.raises(OptionRefused, match=r"(contrast|prompts) = .*text, a Trace"):
            asked()


@pytest.mark.parametrize("ids", [{1, 2}, frozenset({1, 2}), iter([1, 2]), torch.zeros(2, 2), np.array([1.5])])  # fmt: skip
def test_what_has_no_order_or_no_numbers_is_no_prompt(tiny, ids):
    with pytest.raises(
        OptionRefused, match=r"prompt = .*: run takes text, a list of whole numbers"
    ):
        fp.run(tiny, ids)


@pytest.mark.parametrize("ids", [np.array([1, 2]), torch.tensor([1, 2]), pd.Series([1, 2]), (1, 2)])
def test_numbers_in_a_row_are_a_prompt(tiny, ids):
    assert fp.run(tiny, ids).ids[-2:] == (1, 2)


def test_numbers_are_not_saved_under_another_model(tiny, tiny_trace, pocket, tmp_path):
    other = fp.run(pocket, "Tiger Woods plays the sport of")
    for given in (tiny_trace, tiny_trace.table):
        with pytest.raises(FfnProbeError, match=r"these numbers are of .*; the provenance given is of pocket"):  # fmt: skip
            fp.save(given, tmp_path / "x.json", provenance=other)
    assert list(tmp_path.iterdir()) == []
    fp.save(tiny_trace.table, tmp_path / "x.json", provenance=tiny_trace)


def test_what_is_empty_or_of_another_length_is_refused(tiny, tiny_trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = fp.circuit(tiny, "the cat", " sat", keep=3)
    scan = fp.scan(tiny, {"one": "the cat sat"}, top=1, workers=1)
    for asked, words in (
        (lambda: fp.batch(tiny, ["the cat"], verb="run", store=""), "store = '': it is not a folder"),
        (lambda: fp.check_circuit(found, rules=""), '"" is not a rule'),
        (lambda: fp.label(tiny, scan, neurons=[]), "no neuron is named"),
        (lambda: fp.contrast_with(tiny_trace, " the", ["the dog", "the mat"], answers=[" a"]),
         "1 answers are given for 2 contrast prompts"),
    ):  # fmt: skip
        with pytest.raises(OptionRefused, match=words):
            asked()
    assert not list(tmp_path.iterdir())

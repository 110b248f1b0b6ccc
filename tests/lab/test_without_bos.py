"""A model without BOS loses no word: position 0 is left out only where it is a BOS."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import ffnprobe as fp
from analyses.lab.figures import plot_word_similarity
from analyses.lab.tallies import tally_scores
from tests.builders import write_model

TEXTS = ["the cat sat on the mat", "the dog ran"]
SCRIPT = Path(__file__).parents[2] / "analyses" / "embedding_similarity.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write_model(tmp_path_factory.mktemp("without_bos"))
    (made / "tokenizer_config.json").write_text('{"bos_token": null}')
    return made


@pytest.fixture(scope="module")
def model(folder):
    found = fp.load(folder, device="cpu")
    assert not fp.run(found, TEXTS[0]).has_bos
    return found


def test_every_position_is_counted(model):
    tally = tally_scores(model, TEXTS)
    scores = torch.cat([fp.run(model, text).scores for text in TEXTS], dim=1).double()
    assert tally.numbers.tolist() == [scores[0].numel()] * 3
    np.testing.assert_allclose(tally.below_zero, (scores < 0).double().mean((1, 2)))


@pytest.mark.parametrize("bos", [False, True])
def test_the_figure_shows_every_word_and_no_bos(tiny, bos):
    trace = fp.run(tiny, TEXTS[0], bos=bos)
    drawn = plot_word_similarity(fp.similarity(trace)).data[0]
    words = trace.tokens[1:] if bos else trace.tokens
    assert list(drawn.x) == list(words)
    assert len(drawn.z) == len(words)


def test_the_script_averages_over_every_pair_of_words(folder, model):
    main = runpy.run_path(str(SCRIPT))["main"]
    printed = {}
    main.__globals__["print_tables"] = printed.update
    main([TEXTS[0], "--model", str(folder), "--token", " basketball", "--token", " football"])
    means = printed["words of the prompt, mean over pairs"].set_index("stage").cosine
    pairs = fp.similarity(fp.run(model, TEXTS[0])).table
    expected = pairs.groupby("stage", sort=False).cosine.mean()
    assert means.tolist() == pytest.approx(expected.tolist())

"""Every verb and command on models whose vocabulary is not GPT-2's: no BOS, a space put in front."""

import json
from dataclasses import replace

import pytest

import ffnprobe as fp
from ffnprobe.corpora import text_pieces
from ffnprobe.corpora.passages import ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import find_texts
from ffnprobe.errors import DataRefused, FfnProbeError
from tests.builders import TINY, write_model
from tests.cli.runner import ffnprobe, refused
from tests.vocabularies import FAMILIES, llama2, qwen2

PROMPT = "the capital of France is"
CONFIG = replace(TINY, vocab=601)


def write(folder, tokenizer):
    """Write a tiny GPT-2 with a family's tokenizer."""
    write_model(folder, CONFIG)
    (folder / "tokenizer.json").unlink()
    tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def no_bos(tmp_path_factory):
    return write(tmp_path_factory.mktemp("no_bos"), qwen2)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    return write(tmp_path_factory.mktemp("blocks"), llama2)


def test_a_model_without_bos_runs_without_it_by_default(no_bos):
    model = fp.load(no_bos, device="cpu")
    row = fp.FactRow(prompt=PROMPT, answer=" Paris")
    explanation = fp.explain(model, PROMPT, " Paris", top=3)
    results = [
        fp.run(model, PROMPT), fp.run(model, [PROMPT])[0], explanation, fp.score(model, [row]),
        fp.steer(model, PROMPT, {"L0N1": 2.0}), fp.scan(model, {"one": PROMPT}),
        fp.attribute(fp.run(model, PROMPT), " Paris"),
    ]  # fmt: skip
    assert [result.provenance.bos for result in results] == [False] * len(results)
    assert results[0].ids == tuple(model.vocab.ids(PROMPT))
    assert results[5].done.tokens == len(model.vocab.ids(PROMPT))
    calls = (
        fp.run,
        fp.explain,
        lambda *given, bos: fp.steer(*given, {"L0N1": 2.0}, bos=bos),
        lambda model, text, bos: fp.scan(model, {"one": text}, bos=bos),
    )
    for call in calls:
        with pytest.raises(FfnProbeError, match="has no BOS token") as caught:
            call(model, PROMPT, bos=True)
        assert caught.value.remedy == "bos=False (--no-bos)"


def test_every_command_runs_on_a_model_without_bos(no_bos, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(PROMPT)
    facts = tmp_path / "facts.csv"
    facts.write_text(f"prompt,answer\n{PROMPT}, Paris\n")
    commands = [
        ("run", PROMPT), ("stages", PROMPT), ("steer", PROMPT, "--set", "L0N1=2"),
        ("attribute", PROMPT, " Paris"), ("ablate", PROMPT, " Paris"), ("explain", PROMPT, " Paris"),
        ("score", facts), ("scan", text, "--store", tmp_path / "store"),
    ]  # fmt: skip
    for words in commands:
        result = ffnprobe(*words, "-m", no_bos, "--format", "json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["provenance"]["bos"] is False, words
    assert "has no BOS token.\n  try: bos=False (--no-bos)" in refused(
        "run", PROMPT, "-m", no_bos, "--bos"
    )
    assert json.loads(ffnprobe("run", "x", "--bos", "--format", "json").stdout)["provenance"]["bos"]


def test_an_answer_goes_on_and_gets_no_space_in_front(blocks):
    model = fp.load(blocks, device="cpu")
    paris = model.vocab.tokenizer.token_to_id("▁Paris")
    trace = fp.run(model, PROMPT)
    assert trace.tokens[:2] == ("<s>", "␣the")
    assert fp.attribute(trace, " Paris").answer == paris
    assert fp.attribute(trace, " Berlin", versus=" Paris").versus == paris
    row = fp.search(model, " Paris", top=1).table.iloc[0]
    direction = model.unembedding[paris] - model.mean_unembedding
    assert row["dot"] == pytest.approx(
        float(model.answers[row.layer, row.neuron] @ direction), abs=1e-4
    )
    scores = fp.score(model, [fp.FactRow(prompt=PROMPT, answer=" Paris")])
    assert scores.table.pieces[0] == 1
    probability = float(trace.logits[-1].softmax(-1)[paris])
    assert scores.table.probability[0] == pytest.approx(probability, rel=1e-4)
    # Without its space it is another token, or several; never the one with a space.
    assert paris not in model.vocab.pieces("Paris")


def test_a_page_is_got_again_by_the_same_words(blocks, tmp_path):
    model = fp.load(blocks, device="cpu")
    explanation = fp.explain(model, PROMPT, " Paris", top=3)
    page = fp.save(explanation, tmp_path / "explanation.html")
    text = (tmp_path / "explanation.html" if page is None else page).read_text()
    assert f"--html explain.html -- &#x27;{PROMPT}&#x27; &#x27; Paris&#x27;" in text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text_gives_the_same_tokens_in_pieces(family, tmp_path, monkeypatch):
    from ffnprobe.models.loading import read_vocab

    vocab = read_vocab(FAMILIES[family](tmp_path), size=600, bos=None)
    text = "The capital of\nFrance is Paris,\n    and 12 dogs ran  to the court.\n" * 9
    text += "Paris court_\ncapital_\n" * 9
    monkeypatch.setattr(text_pieces, "PIECE", 40)
    assert len(list(text_pieces._cut([text]))) > 10
    blocks = cut_blocks(vocab, find_texts({"one": text}), ScanSettings(context=7, bos=False))
    cut = [token for block in blocks for passage in block.passages for token in passage.ids]
    assert cut == vocab.ids(text)


def test_a_scan_shows_its_examples_in_words(blocks):
    model = fp.load(blocks, device="cpu")
    text = "the dog ran to the basketball court in Paris, 東京"
    scan = fp.scan(model, {"one": text}, top=3)
    example = fp.examples(scan, "L0N1").strongest[0]
    joined = "".join((*example.before, example.token, *example.after))
    assert joined in "".join(model.vocab.show_all(model.vocab.ids(text)))
    assert scan.provenance.bos


def test_text_a_vocabulary_would_change_stops_a_scan_in_words(no_bos):
    with pytest.raises(DataRefused, match="one is not in Unicode's form NFC"):
        fp.scan(fp.load(no_bos, device="cpu"), {"one": "cafe\u0301"})

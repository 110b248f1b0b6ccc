"""Results to save and draw, and a model whose vocabulary means harm."""

import json
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import ffnprobe as fp
from ffnprobe.models.vocab import BYTE_OF_LETTER
from tests.builders import END, TINY, config_json, random_weights, write_model
from tests.views.results import every_result

HOSTILE = (
    "<script>window.harmed=1</script>", "</td>", '"><img src=x onerror="window.harmed=1">',
    "</script><script>window.harmed=1</script>", "<!--", "&lt;b&gt;", "javascript:window.harmed=1",
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "'", "null", "007", "a\nb", "a\tb", '"quoted"',
    " leading", "#hash", "x,=1+1", "\u2028", "\0", "%{x}", "<br>", "<b>bold</b>", "$x$", "`code`|*_",
)  # fmt: skip


def write_hostile(folder: Path) -> Path:
    """Write a model folder whose vocabulary holds markup, formulas and characters that are none."""
    letters = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}
    words = ["".join(letters[byte] for byte in text.encode()) for text in HOSTILE]
    vocab = {END: 0} | {letter: 1 + n for n, letter in enumerate(sorted(BYTE_OF_LETTER))}
    vocab |= {word: len(vocab) + n for n, word in enumerate(w for w in words if w not in vocab)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END, "<img src=y onerror='window.harmed=1'>"])
    config = replace(TINY, vocab=tokenizer.get_vocab_size(), positions=41)
    write_model(folder, config, random_weights(config))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config_json(config)))
    return folder


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """A model with every hostile token in its vocabulary."""
    model = fp.load(write_hostile(tmp_path_factory.mktemp("hostile")), device="cpu")
    assert '"><img␣src=x␣onerror="window.harmed=1">' in model.vocab.shown
    assert "⟨U+2028⟩" in model.vocab.shown
    assert "⟨E2⟩" in model.vocab.shown
    return model


@pytest.fixture(scope="session")
def hostile_results(hostile: fp.Model) -> dict[str, Any]:
    """One of every result, on a prompt of hostile tokens."""
    ids = [
        n for n, text in enumerate(hostile.vocab.shown) if n > 256 or text in ("⟨E2⟩", "⟨U+0000⟩")
    ]
    assert len(ids) < hostile.config.positions
    return every_result(hostile, ids, ids[0])


@pytest.fixture(scope="session")
def results(tiny: fp.Model) -> dict[str, Any]:
    """One of every result of the tiny model."""
    ids = tiny.vocab.ids("the cat sat on the basketball court")
    made = every_result(tiny, ids, tiny.vocab.one(" the"))
    made["PushesByPiece"] = fp.attribute(made["Trace"], " Paris basketball")
    made["Batch"] = fp.batch(tiny, ["the cat", "", "the mat"], verb="attribute", top=2)
    made["Search"] = fp.search(tiny, [" the", " basketball"], top=5)
    made["Scan"] = fp.scan(
        tiny, {"a": "the cat sat on the mat", "b": "the dog ran"}, top=2, workers=1
    )
    made["Examples"] = fp.examples(made["Scan"], "L1N7")
    texts = {str(n): f"the cat sat on mat {n} and the dog ran" for n in range(24)}
    made["Labels"] = fp.label(tiny, fp.scan(tiny, texts, top=2, workers=1))
    facts = [
        fp.FactRow(f"the {animal} {verb}", f" {answer}", verb)
        for verb, answer in (("sat on", "the"), ("ran to", "basketball"))
        for animal in ("cat", "dog", "mat")
    ]
    scores = fp.score(tiny, facts, top=3)
    made |= {
        "Scores": scores, "Relations": scores.by_relation(permutations=9),
        "Overlap": scores.overlap(permutations=9),
        "Specificity": scores.specificity("sat on", 2, draws=2),
    }  # fmt: skip
    spread = {"all": " ".join(f"{a} {b}" for a in string.printable[:90] for b in ("the", "cat"))}
    made["ListChecks"] = fp.check_lists(tiny, "L1N7")
    made["JacobianLens"] = fp.fit_lens(tiny, spread, passages=1)
    made["KeyMoments"] = fp.scan_keys(tiny, spread)
    options = {"subject": "cat", "scan": made["KeyMoments"], "method": "alphaedit", "layer": 1}
    made["Edited"] = fp.edit(tiny, "the cat sat on", " basketball", **options)
    made["Certificate"] = fp.certify(made["Edited"], facts)
    return made


@pytest.fixture(scope="session")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """A model of one layer that knows nothing: every weight is zero."""
    config = replace(TINY, layers=1)
    weights = {name: torch.zeros_like(weight) for name, weight in random_weights(config).items()}
    return fp.load(write_model(tmp_path_factory.mktemp("zeros"), config, weights), device="cpu")

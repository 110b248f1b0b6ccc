"""A planted model: one layer whose neurons are a token detector, a bigram detector, and so on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import ffnprobe as fp
from ffnprobe.models.config import Config
from tests.builders import END, config_json

WORDS = [a + b for a in "bdfgklmnprstvwzj" for b in ("a", "e", "i", "o", "u", "ay")]
NUMBERS = ["11", "23", "35", "47", "59"]
TARGET, FIRST, SECOND, ERASED = "golf", "sport", "of", "rust"
VOCAB = [END, *WORDS, *NUMBERS, ".", TARGET, FIRST, SECOND, ERASED]
LENGTH, TEXTS = 80, 240
# Blocks of the stream: tokens, whether a number, positions, the token before, tokens further back.
TOKEN, DIGIT, PLACE, BEFORE, FAR = (
    slice(0, 64),
    64,
    slice(65, 165),
    slice(165, 229),
    slice(229, 293),
)
CONFIG = Config(layers=1, heads=2, d_model=300, d_mlp=9, positions=100, vocab=len(VOCAB), bos=0)
NEURONS = {
    "token": 0, "bigram": 1, "position": 2, "number": 3, "dead": 4, "eraser": 5, "random": 6,
}  # fmt: skip
POSITION = 13  # in the text 12: BOS is not counted
PROMOTED = slice(20, 30)


def write_planted(folder: Path) -> Path:
    """Write the model's folder: weights by hand, a vocabulary of words."""
    generator = torch.Generator().manual_seed(0)
    d = CONFIG.d_model
    weights = {name: torch.zeros(shape) for name, shape in CONFIG.shapes().items()}
    for name in weights:
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            weights[name] += 1
    words = torch.randn(len(VOCAB), 64, generator=generator)
    words = words / words.norm(dim=-1, keepdim=True)
    words[0] = 0
    weights["wte.weight"][:, TOKEN] = 5 * words
    weights["wte.weight"][[VOCAB.index(n) for n in NUMBERS], DIGIT] = 5
    weights["wpe.weight"][:, PLACE] = 5 * torch.eye(100)
    # One head looks at the token before; the other at those three to six before.
    half = d // 2
    query, key, value = (torch.zeros(d, d) for _ in range(3))
    for lag, head in ((1, 0), (3, 1), (4, 1), (5, 1), (6, 1)):
        for place in range(lag, 100):
            query[PLACE.start + place, head * half + place - lag] = 5
    for head in (0, 1):
        key[PLACE, head * half : head * half + 100] = torch.eye(100)
        value[TOKEN, head * half : head * half + 64] = torch.eye(64)
    weights["h.0.attn.c_attn.weight"] += torch.cat([query, key, value], dim=1)
    weights["h.0.attn.c_proj.weight"][:64, BEFORE] = 0.4 * torch.eye(64)
    weights["h.0.attn.c_proj.weight"][half : half + 64, FAR] = 0.8 * torch.eye(64)
    ask, bias, answer = (
        weights[f"h.0.mlp.{name}"] for name in ("c_fc.weight", "c_fc.bias", "c_proj.weight")
    )
    of = {word: words[VOCAB.index(word)] for word in (TARGET, FIRST, SECOND, ERASED)}
    ask[TOKEN, NEURONS["token"]] = of[TARGET]
    ask[TOKEN, NEURONS["bigram"]], ask[BEFORE, NEURONS["bigram"]] = of[SECOND], of[FIRST]
    bias[NEURONS["bigram"]] = -12
    ask[PLACE.start + POSITION, NEURONS["position"]] = 1
    ask[DIGIT, NEURONS["number"]] = 1
    ask[TOKEN, NEURONS["dead"]], bias[NEURONS["dead"]] = of[TARGET], -100
    ask[TOKEN, NEURONS["eraser"]] = of[ERASED]
    ask[FAR, NEURONS["random"]] = torch.randn(64, generator=generator)
    ask[PLACE.start : PLACE.start + 8, NEURONS["random"]] = -9
    for neuron in range(CONFIG.d_mlp):
        answer[neuron, TOKEN] = 2 * words[5 + neuron]
    answer[NEURONS["token"], TOKEN] = words[PROMOTED].sum(dim=0)
    answer[NEURONS["eraser"]] = -ask[:, NEURONS["eraser"]]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(VOCAB)}, unk_token=END)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config_json(CONFIG)))
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    return folder


def write_texts(path: Path, *, texts: int = TEXTS, seed: int = 0) -> Path:
    """Write random words with every planted thing at a little more than one token in a hundred."""
    draw = random.Random(seed)
    lines = []
    for _ in range(texts):
        line: list[str] = []
        while len(line) < LENGTH:
            chance = draw.random()
            if chance < 0.012:
                line.append(TARGET)
            elif chance < 0.024:
                line += [FIRST, SECOND]
            elif chance < 0.044:
                line.append(draw.choice([FIRST, SECOND]))
            elif chance < 0.056:
                line.append(draw.choice(NUMBERS))
            elif chance < 0.068:
                line.append(ERASED)
            else:
                line.append(draw.choice(WORDS))
        lines.append(" ".join(line[:LENGTH]))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """The planted model, every axis a different length."""
    model = fp.load(write_planted(tmp_path_factory.mktemp("planted")), device="cpu")
    c = model.config
    assert len({c.layers, c.heads, c.d_model, c.d_mlp, c.positions, c.vocab}) == 6
    return model


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("words") / "words.txt")


@pytest.fixture(scope="session")
def store(planted: fp.Model, words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a scan of the planted texts, without labels."""
    folder = tmp_path_factory.mktemp("store") / "scan"
    fp.scan(planted, words, store=folder, lines=True, top=3, workers=1)
    return folder


@pytest.fixture(scope="session")
def labels(planted: fp.Model, store: Path) -> fp.Labels:
    return fp.label(planted, fp.Scan.open(store))

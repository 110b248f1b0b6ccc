"""What a model is: its weights, the configuration that changes numbers, and its vocabulary.

    identity = fingerprint of the weights - hash of the configuration - hash of the vocabulary

The same weights with another epsilon, activation or tokenizer give other numbers, so a store, means and
every provenance record all three. Of the configuration only what differs from GPT-2's defaults is
hashed, and the vocabulary is hashed by what it does (its tokens, its merges, and the ids of a sample),
so that the identity does not change with the version of a library.

>>> import ffnprobe as fp
>>> model = fp.load("pocket")
>>> weights, configuration, vocabulary = model.identity.split("-")
>>> weights == model.fingerprint
True
"""

import json
from dataclasses import MISSING, fields
from typing import Any

import xxhash

from ffnprobe.models.config import Config
from ffnprobe.models.vocab import Vocab

PARTS = ("weights", "configuration", "vocabulary")
# Letters, digits, blanks, contractions, punctuation, accents (composed and not), other scripts.
_SAMPLE = (
    "The  cat's 12,345.67 don’t\n\n\tNAÏVE café cafe\u0301 — 中文 Привет 🙂 ﬁ x_y <s> \u00a0 end."
)


def identify(fingerprint: str, config: Config, vocab: Vocab) -> str:
    """Write a model's identity."""
    return f"{fingerprint}-{_hash(_configuration(config))}-{_hash(_vocabulary(vocab))}"


def tell_apart(known: str, wanted: str) -> str:
    """Name what two identities differ in, or nothing if they are the same."""
    if known == wanted:
        return ""
    pairs = zip(PARTS, known.split("-"), wanted.split("-"), strict=False)
    return " and ".join(name for name, ours, theirs in pairs if ours != theirs) or "identity"


def _configuration(config: Config) -> dict[str, Any]:
    known = {
        each.name: getattr(config, each.name)
        for each in fields(config)
        if each.compare and (each.default is MISSING or getattr(config, each.name) != each.default)
    }
    positions = {
        name: value for name, value in config.native.items() if "rope" in name or "rotary" in name
    }
    return {"config": known, "positions": positions}


def _vocabulary(vocab: Vocab) -> list[Any]:
    tokenizer = vocab.tokenizer
    tokens = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    merges = json.loads(tokenizer.to_str())["model"].get("merges", ())
    pairs = [each if isinstance(each, str) else " ".join(each) for each in merges]
    try:
        sample = tokenizer.encode(_SAMPLE, add_special_tokens=False).ids
    except Exception:  # a tokenizer of words or numbers, without a token for what it does not know
        sample = []
    return [vocab.size, vocab.bos, tokens, pairs, sample]


def _hash(value: object) -> str:
    def plain(value: object) -> list[str] | str:
        return sorted(value) if isinstance(value, frozenset) else str(value)

    return xxhash.xxh3_64_hexdigest(json.dumps(value, sort_keys=True, default=plain).encode())

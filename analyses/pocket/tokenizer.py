"""A byte-level tokenizer in which every word of the model's text is one token; other words are spelt in bytes."""

from collections.abc import Iterator
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from analyses.pocket import texts
from ffnprobe.models import pocket

BOS = "<|endoftext|>"
PASSAGES = 20_000
CUT = pre_tokenizers.ByteLevel(add_prefix_space=False)


def build_tokenizer() -> Tokenizer:
    """List BOS, the bytes and the words: a GPT-2 tokenizer without the merges on the way to a word."""
    listed = dict.fromkeys([BOS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *list_words()])
    numbers = {token: number for number, token in enumerate(listed)}
    tokenizer = Tokenizer(models.BPE(numbers, [], ignore_merges=True))
    tokenizer.pre_tokenizer = CUT
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS])
    return tokenizer


@cache
def list_words() -> tuple[str, ...]:
    """List the words of the text, as tokens are written."""
    return tuple(sorted({word for text in _texts() for word, _ in CUT.pre_tokenize_str(text)}))


def _texts() -> Iterator[str]:
    """Yield every sentence with a fact and much other text, as it stands in a row."""
    for prompt in pocket.prompts():
        for separator in ("", " "):
            yield separator + prompt.text + prompt.fact.answer + "."
    for passage in texts.passages(PASSAGES, seed=0):
        for separator in ("", " ", "\n"):
            yield separator + passage.text

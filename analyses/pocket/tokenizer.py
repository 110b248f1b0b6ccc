"""A byte-level BPE in GPT-2's layout in which every word of the model's text is one token."""

from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ffnprobe.models import pocket
from pocket import texts

BOS = "<|endoftext|>"
PASSAGES = 20_000


def train_tokenizer() -> Tokenizer:
    """Merge letters until every word is whole.

    Each different word counts once, so merges depend on spelling alone, not on how often a kind of
    sentence is drawn.
    """
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole = decoders.ByteLevel()
    words = sorted({word for text in _texts() for word, _ in cut.pre_tokenize_str(text)})
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = whole
    trainer = trainers.BpeTrainer(
        vocab_size=20_000,
        min_frequency=1,
        special_tokens=[BOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([whole.decode([word]) for word in words], trainer)
    split = [word for word in words if tokenizer.token_to_id(word) is None]
    if split:
        raise SystemExit(f"words of several tokens: {split}")
    return tokenizer


def _texts() -> Iterator[str]:
    for prompt in pocket.prompts():
        for separator in ("", " "):
            yield separator + prompt.text + prompt.fact.answer + "."
    for passage in texts.passages(PASSAGES, seed=0):
        for separator in ("", " ", "\n"):
            yield separator + passage.text

"""Sentences as word pieces: a vocabulary learnt from the training split, or BERT's if it is here.

>>> tokenizer = train_pieces(["a dull film .", "a bright film ."], size=60)
>>> tokenizer.encode("a bright film .").tokens
['a', 'bright', 'film', '.']
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from analyses.encoders.sentiment import Corpus, Split

PAD, UNKNOWN = "[PAD]", "[UNK]"
BERT = ("google-bert/bert-base-uncased", "bert-base-uncased")


@dataclass(frozen=True)
class Pieces:
    """A corpus as token ids, every sentence cut or padded to one length."""

    corpus: Corpus
    tokenizer: str
    vocab: int
    pad: int
    train: tuple[Int[Tensor, "sentence pos"], Int[Tensor, " sentence"]]
    dev: tuple[Int[Tensor, "sentence pos"], Int[Tensor, " sentence"]]


def cut_pieces(corpus: Corpus, *, tokens: int = 32, size: int = 8000) -> Pieces:
    """Cut both splits into word pieces: BERT's if it is in the hub's cache, else learnt here."""
    tokenizer = find_bert()
    name = "bert-base-uncased's word pieces"
    if tokenizer is None:
        tokenizer = train_pieces(corpus.train.texts, size=size)
        name = f"{tokenizer.get_vocab_size():,} word pieces of the training split"
    pad = tokenizer.get_vocab()[PAD]
    tokenizer.enable_truncation(tokens)
    tokenizer.enable_padding(length=tokens, pad_id=pad, pad_token=PAD)

    def cut(split: Split) -> tuple[Tensor, Tensor]:
        encoded = tokenizer.encode_batch(list(split.texts), add_special_tokens=False)
        return torch.tensor([one.ids for one in encoded]), torch.tensor(split.labels)

    return Pieces(
        corpus=corpus, tokenizer=name, vocab=tokenizer.get_vocab_size(),
        pad=pad, train=cut(corpus.train), dev=cut(corpus.dev),
    )  # fmt: skip


def train_pieces(texts: Sequence[str], *, size: int) -> Tokenizer:
    """Learn a lower-case word-piece vocabulary; the same for the same texts."""
    learner = _new_tokenizer({UNKNOWN: 0})
    letters = sorted(set(learner.normalizer.normalize_str("".join(texts))) - {" "})
    # The trainer numbers the letters inside words in no fixed order, and breaks ties by number:
    # named beforehand, they have theirs.
    inside = [f"##{letter}" for letter in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=[PAD, UNKNOWN, *inside], show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    # Built anew, so that "##a" in a text is what any other text is.
    return _new_tokenizer(learner.get_vocab())


def _new_tokenizer(vocab: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def find_bert() -> Tokenizer | None:
    """Return bert-base-uncased's tokenizer from the hub's cache; nothing is downloaded."""
    from huggingface_hub import try_to_load_from_cache

    for name in BERT:
        path = try_to_load_from_cache(name, "tokenizer.json")
        if isinstance(path, str):
            return Tokenizer.from_file(path)
    return None

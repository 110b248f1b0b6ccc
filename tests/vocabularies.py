"""Small tokenizers with the layout and the quirks of each family's own, trained here."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

CORPUS = [
    "Paris is the capital of France and Berlin is the capital of Germany. " * 8,
    "the cat sat on the mat, and the dog ran to the basketball court in Paris " * 8,
    "def f(x):\n    if x:\n        return 1999\n\n\n" * 8,
    "Paris Berlin\tnaïve é 東京 basketball" * 4,
    "capital_\ncourt_\n" * 8,
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)


def _train(cut: Any, special: Sequence[str], *, size: int, form: Any = None) -> Tokenizer:
    """Train a byte-level BPE, the special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = cut, decoders.ByteLevel()
    if form is not None:
        tokenizer.normalizer = form
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(special), show_progress=False,
            initial_alphabet=alphabet,
        ),
    )  # fmt: skip
    return tokenizer


def _cut_by(pattern: str) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _save(folder: Path, tokenizer: Tokenizer, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    known = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(known | settings))
    return folder


def llama3(folder: Path) -> Path:
    """Digits by threes; many special tokens behind the vocabulary."""
    tokenizer = _train(_cut_by(LLAMA3), [], size=400)
    reserved = [f"<|reserved_special_token_{n}|>" for n in range(20)]
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", *reserved])
    return _save(folder, tokenizer, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def qwen2(folder: Path) -> Path:
    """Text in NFC; BOS is said to be none, though the configuration holds an id."""
    tokenizer = _train(_cut_by(QWEN), [], size=400, form=normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<tool_call>", "<think>"])
    return _save(folder, tokenizer, bos_token=None, eos_token="<|im_end|>")


def smollm2(folder: Path) -> Path:
    """Each digit by itself; special tokens in front of the vocabulary."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    cut = pre_tokenizers.Sequence([digits, GPT2])
    tokenizer = _train(cut, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], size=400)
    return _save(folder, tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>")


def neox(folder: Path) -> Path:
    """Runs of spaces added behind a vocabulary that has some of them already."""
    special = ["<|endoftext|>", "<|padding|>"]
    tokenizer = _train(GPT2, special, size=400, form=normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return _save(folder, tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def opt(folder: Path) -> Path:
    """The older pair of files; BOS is `</s>`, written with its properties."""
    folder.mkdir(parents=True, exist_ok=True)
    _train(GPT2, ["<s>", "<pad>", "</s>", "<unk>"], size=400).model.save(str(folder))
    end = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": True,
           "rstrip": False, "single_word": False}  # fmt: skip
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": end, "eos_token": end,
                "unk_token": end, "pad_token": end | {"content": "<pad>"}}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _train_blocks(special: Sequence[str], extra: Sequence[str] = ()) -> tuple[dict, list]:
    """Train a BPE of letters, all 256 bytes behind the special tokens; return tokens and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    # Accents and 東京 are left to the bytes.
    corpus = [text.encode("ascii", errors="ignore").decode() for text in CORPUS]
    tokenizer.train_from_iterator(
        [text.replace("\n", " ").replace("\t", " ") for text in corpus],
        trainers.BpeTrainer(
            vocab_size=450, special_tokens=[*special, *extra, *byte_tokens], show_progress=False
        ),
    )
    known = json.loads(tokenizer.to_str())["model"]
    return known["vocab"], [tuple(pair) for pair in known["merges"]]


def _blocks(vocab: dict, merges: list, *, strip: bool) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts + [decoders.Strip(" ", 1, 0)] * strip)
    return tokenizer


def llama2(folder: Path) -> Path:
    """A space is put in front of every text by the normaliser, a second one before a first."""
    tokenizer = _blocks(*_train_blocks(["<unk>", "<s>", "</s>"]), strip=True)
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    special = [AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    tokenizer.add_special_tokens(special)
    return _save(folder, tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def mistral(folder: Path) -> Path:
    """A space is put in front of the first word only, unless there is one."""
    tokenizer = _blocks(*_train_blocks(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]), strip=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    return _save(folder, tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def gemma(folder: Path) -> Path:
    """No space in front; a newline is a token beside its byte; runs of blocks are named as added."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    vocab, merges = _train_blocks(special, ["\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>"])
    merges = [("\n", "\n"), ("▁", "▁"), ("▁▁", "▁"), ("▁▁", "▁▁"), *merges]
    tokenizer = _blocks(vocab, merges, strip=False)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    named = ("\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in named])
    # Gemma 3 adds an image's place behind the rows its text model has.
    tokenizer.add_special_tokens(["<image_soft_token>"])
    return _save(folder, tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")


FAMILIES: dict[str, Callable[[Path], Path]] = {
    write.__name__: write for write in (llama3, qwen2, smollm2, neox, opt, llama2, mistral, gemma)
}

"""A tokenizer as its files hold it: `tokenizer.json`, or `vocab.json` with `merges.txt`.

`tokenizer_config.json` beside them names the special tokens, BOS among them. Where a folder has none,
one can be given: a file, an object, or "ids", which writes each token as its number.
"""

import json
import os
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.files import check_regular, read_json, safe_read
from ffnprobe.models.config import MOST_TOKENS

T = TypeVar("T")
END_OF_TEXT = "<|endoftext|>"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
Rule = dict[str, Any]
IDS = "ids"  # writes each token as its number, with spaces between
# By how much the rules of a tokenizer may lengthen a text: Llama's make three bytes of a space.
MOST_GROWTH = 64
# In JSON, but perhaps inside a text: as many digits as the first number beyond MOST_TOKENS has.
_LONG_NUMBER = re.compile(rf"[:,\[]\s*[0-9]{{{len(str(MOST_TOKENS + 1))}}}")


class TransformersTokenizer(Protocol):
    """A tokenizer of transformers, which keeps the tokenizer itself inside."""

    @property
    def backend_tokenizer(self) -> Any: ...


# A tokenizer, a file or folder of one, or "ids".
Given = Tokenizer | TransformersTokenizer | str | os.PathLike[str]


def is_panic(error: BaseException) -> bool:
    """Say whether a library of Rust code gave up: pyo3's PanicException is not an Exception."""
    return type(error).__name__ == "PanicException"


def build_tokenizer(build: Callable[[], T], name: str) -> T:
    """Build a tokenizer with a library, and say which one cannot be read."""
    try:
        return build()
    except ModelNotLoaded:
        raise
    except BaseException as error:  # the tokenizers library raises bare Exception
        if isinstance(error, Exception) or is_panic(error):
            raise ModelNotLoaded(f"the tokenizer {name} cannot be read: {error}.") from None
        raise


def choose_tokenizer(given: Given | None, folder: Path, *, size: int) -> Tokenizer:
    """Return the tokenizer given, or the folder's own where none is."""
    if given is None:
        return read_tokenizer(folder)
    if given == IDS:
        tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(size)}))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer
    if not isinstance(given, str | os.PathLike):
        inner = given if isinstance(given, Tokenizer) else given.backend_tokenizer
        list_own(inner, size=size)
        return _settle(Tokenizer.from_str(inner.to_str()), "the tokenizer given")
    path = Path(given).expanduser()
    if os.path.isdir(path):
        return read_tokenizer(path)
    check_regular(path, refuse=ModelNotLoaded)
    if not os.path.isfile(path):
        remedy = 'a tokenizer.json, the folder of one, or "ids" (tokens as numbers)'
        raise ModelNotLoaded(f"there is no tokenizer {path}.", remedy=remedy)
    return build_tokenizer(lambda: _read_file(path), str(path))


def list_own(tokenizer: Tokenizer, *, size: int) -> dict[str, int]:
    """Return a tokenizer's own tokens; refuse any that the model has no row for.

    A library writes a tokenizer out as a list, as long as its largest id.
    """
    own = tokenizer.get_vocab(with_added_tokens=False)
    if (last := max(own.values(), default=0)) >= size or len(own) > size:
        what = f"{len(own)} tokens" if len(own) > size else f"token {last}"
        raise ModelNotLoaded(f"the tokenizer has {what}; the model knows {size}.")
    return own


def _read_ids(path: Path) -> str:
    """Read a file of JSON with ids, none beyond any vocabulary; a large one is not parsed for that."""
    text = safe_read(path, refuse=ModelNotLoaded).decode()
    if _LONG_NUMBER.search(text):
        digits: list[str] = []
        json.loads(text, parse_int=digits.append)
        if (largest := max(map(int, digits), default=0)) > MOST_TOKENS:
            raise ModelNotLoaded(
                f"{path} holds the number {largest:,}; ffnprobe reads ids up to {MOST_TOKENS:,}.",
                remedy="the tokenizer that the model was published with",
            )
    return text


def _read_file(path: Path) -> Tokenizer:
    text = _read_ids(path)
    return _settle(Tokenizer.from_str(text), str(path))


def _settle(tokenizer: Tokenizer, where: str) -> Tokenizer:
    """Switch off what makes one text come out in several ways, or refuse what makes it endless."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None  # of use in training alone: merges are left out by chance
    rules = [rule for part in _parts(tokenizer).values() for rule in _list_rules(part or {})]
    growth = prod(max(1, len(str(rule.get("content") or ""))) for rule in rules)
    growth *= prod(1 + len(str(rule.get("prepend") or "")) for rule in rules)
    if growth > MOST_GROWTH:
        raise ModelNotLoaded(
            f"{where}: its rules can make a text {growth:,} times as long; ffnprobe allows {MOST_GROWTH}."
        )
    return tokenizer


def _list_rules(part: Rule) -> list[Rule]:
    """List the rules of a part of a tokenizer, those of a sequence one by one."""
    inner = [*part.get("normalizers", ()), *part.get("pretokenizers", ())]
    return [rule for each in inner for rule in _list_rules(each)] if inner else [part]


def read_tokenizer(folder: Path) -> Tokenizer:
    whole, vocab, merges = (folder / n for n in ("tokenizer.json", "vocab.json", "merges.txt"))
    for path in (whole, vocab, merges):
        check_regular(path, refuse=ModelNotLoaded)
    if whole.is_file():
        return build_tokenizer(lambda: _read_file(whole), f"in {folder}")
    if vocab.is_file() and merges.is_file():
        return build_tokenizer(lambda: _read_pair(vocab, merges), f"in {folder}")
    raise ModelNotLoaded(
        f"{folder} has no tokenizer.",
        remedy="tokenizer.json, or vocab.json and merges.txt; in Python "
        'load(…, tokenizer=FILE), or tokenizer="ids" for tokens as numbers',
    )


def _read_pair(vocab: Path, merges: Path) -> Tokenizer:
    """Read the older pair of files, which GPT-2 and OPT come in; it does not say how text is cut."""
    settings = _read_settings(vocab.parent)
    name = str(settings.get("tokenizer_class") or "GPT2Tokenizer").removesuffix("Fast")
    if name != "GPT2Tokenizer":
        raise ModelNotLoaded(
            f"{vocab.parent} is for a {name}, which vocab.json and merges.txt do not describe.",
            remedy="its tokenizer.json",
        )
    _read_ids(vocab)
    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {END_OF_TEXT, *(_content(settings.get(name)) for name in _SPECIAL)}
    own = (text for text in special if text and tokenizer.token_to_id(text) is not None)
    tokenizer.add_special_tokens(sorted(own))
    return tokenizer


def find_bos(folder: Path, tokenizer: Tokenizer, *, size: int, bos: int | None) -> int | None:
    """Return the tokenizer's own BOS, else the configuration's, else GPT-2's if it is there."""
    settings = _read_settings(folder)
    if "bos_token" in settings:
        text = _content(settings["bos_token"])
        if text is None:  # as Qwen's: these models know no BOS, whatever their configuration holds
            return None
        own = tokenizer.token_to_id(text)
        if own is not None and own < size:
            return own
    return tokenizer.token_to_id(END_OF_TEXT) if bos is None or bos >= size else bos


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    settings = read_json(path, refuse=ModelNotLoaded) if path.exists() else {}
    return settings if isinstance(settings, dict) else {}


def _content(token: Any) -> str | None:
    """Return the text of a special token, which is written bare or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def without_prefix(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that puts no space in front of a text: the very one if it puts none."""
    parts = _parts(tokenizer)
    bare = {name: _drop_prefix(part) for name, part in parts.items()}
    if bare == parts:
        return tokenizer
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | bare))


def unicode_form(tokenizer: Tokenizer) -> Form | None:
    """Name the Unicode form a tokenizer brings texts into, if it does."""
    types = [rule.get("type") for rule in _list_rules(_parts(tokenizer)["normalizer"] or {})]
    return next((form for form in get_args(Form) if form in types), None)


def _parts(tokenizer: Tokenizer) -> dict[str, Rule | None]:
    """Return what changes and cuts a text before the model sees it, as plain data."""
    parts = {name: getattr(tokenizer, name) for name in ("normalizer", "pre_tokenizer")}
    return {n: None if p is None else dict(json.loads(p.__getstate__())) for n, p in parts.items()}


def _drop_prefix(part: Rule | None) -> Rule | None:
    if part is None or part["type"] == "Prepend":
        return None
    match part:
        case {"type": "Metaspace"}:
            return part | {"prepend_scheme": "never"}
        case {"type": "ByteLevel"}:
            return part | {"add_prefix_space": False}
        case {"type": "Sequence"}:
            inner = "normalizers" if "normalizers" in part else "pretokenizers"
            return part | {inner: [bare for each in part[inner] if (bare := _drop_prefix(each))]}
    return part

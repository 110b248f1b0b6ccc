"""The vocabulary: text ↔ token id ↔ the form a token is shown in.

Shown forms keep distinct tokens distinct: a space is `␣`, a newline `⏎`, a tab `⇥`; any other
character that cannot be seen is `⟨U+00A0⟩`; a byte that is only part of a UTF-8 character is `⟨E2⟩`.

The text of a prompt or a token is never repaired: `one(" basket ball")` fails and suggests.
"""

import difflib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ffnprobe.errors import ModelNotLoaded, TokenNotFound

END_OF_TEXT = "<|endoftext|>"
_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_RESERVED = frozenset("␣⏎⇥⟨⟩")
# Separators, control, format, surrogate, private and unassigned characters are invisible or unstable.
_UNSEEN = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"))


def _byte_of_letter() -> dict[str, int]:
    """Undo GPT-2's byte alphabet: printable bytes stand for themselves, the rest from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + order): byte for order, byte in enumerate(others)}


_BYTES = _byte_of_letter()


def show_bytes(data: bytes) -> str:
    """Show a token's bytes so that it cannot be mistaken for another's."""
    shown: list[str] = []
    for character in data.decode("utf-8", errors="surrogateescape"):
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            shown.append(f"⟨{code - 0xDC00:02X}⟩")
        elif character in _MARKS:
            shown.append(_MARKS[character])
        elif character in _RESERVED or unicodedata.category(character) in _UNSEEN:
            shown.append(f"⟨U+{code:04X}⟩")
        elif unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
            # A mark would melt into its neighbour and two spellings of one letter look alike.
            shown.append(f"⟨U+{code:04X}⟩")
        else:
            shown.append(character)
    return "".join(shown)


class Vocab:
    """A byte-level BPE vocabulary, as GPT-2's."""

    def __init__(self, tokenizer: Tokenizer, *, size: int, bos: int | None) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.bos = bos
        # A model may have more rows than its tokenizer has tokens (padding), never fewer.
        if tokenizer.get_vocab_size() > size:
            raise ModelNotLoaded(
                f"the tokenizer has {tokenizer.get_vocab_size()} tokens; the model knows {size}."
            )
        self._special = {
            number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()
        }

    def __len__(self) -> int:
        return self.size

    def ids(self, text: str) -> list[int]:
        """Split a text into token ids; nothing is added."""
        try:
            found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError:  # the tokenizers library's word for bytes that are no UTF-8
            found = []
        if self.text(found) != text:
            raise TokenNotFound(f"{text!r} holds characters this vocabulary cannot write.")
        return found

    def bytes(self, token: int) -> bytes:
        """Return the bytes a token stands for; ids without a token have none."""
        if token in self._special:
            return self._special[token].encode()
        letters = self.tokenizer.id_to_token(token)
        return b"" if letters is None else bytes(_BYTES[letter] for letter in letters)

    def text(self, tokens: Iterable[int]) -> str:
        """Join tokens into text; bytes that are no character become U+FFFD."""
        return b"".join(self.bytes(token) for token in tokens).decode("utf-8", errors="replace")

    def show(self, token: int) -> str:
        """Show one token unmistakably: `␣Paris`, `⏎`, `⟨E2⟩⟨80⟩`."""
        if token in self._special:
            return self._special[token]
        data = self.bytes(token)
        return show_bytes(data) if data else f"⟨id:{token}⟩"

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """Every token's shown form, by id."""
        return tuple(self.show(token) for token in range(self.size))

    def show_all(self, tokens: Sequence[int]) -> list[str]:
        """Show several tokens."""
        return [self.show(token) for token in tokens]

    def one(self, text: str, *, use: str = "a token") -> int:
        """Return the id of a text that is exactly one token, or list its pieces and suggest."""
        if not text:
            raise TokenNotFound(f'"" is no token; {use} needs one.', remedy='" basketball"')
        found = self.ids(text)
        if len(found) == 1:
            return found[0]
        pieces = " ".join(f'"{piece}"' for piece in self.show_all(found))
        near = self.suggest(text)
        raise TokenNotFound(
            f'"{text}" is {len(found)} tokens here: {pieces}; {use} needs one.',
            remedy=" or ".join(f'"{word}"' for word in near) or None,
        )

    def suggest(self, text: str, most: int = 3) -> list[str]:
        """Name single tokens a text may have been meant for, the nearest first."""
        bare = "".join(text.split())
        guesses = [" " + bare, bare, " " + bare.lower(), " " + bare.capitalize()]
        found = [guess for guess in guesses if bare and len(self.ids(guess)) == 1]
        if not found:
            words = {word for word in map(self._word, range(self.size)) if len(word.strip()) > 2}
            near = difflib.get_close_matches(" " + bare.lower(), sorted(words), most, cutoff=0.6)
            found = [word for word in near if len(self.ids(word)) == 1]
        return list(dict.fromkeys(found))[:most]

    def _word(self, token: int) -> str:
        """Return a token's text where it is whole characters, else nothing."""
        try:
            return self.bytes(token).decode("utf-8")
        except UnicodeDecodeError:
            return ""


def read_vocab(folder: Path, *, size: int, bos: int | None) -> Vocab:
    """Read a folder's tokenizer: `tokenizer.json`, or `vocab.json` with `merges.txt`."""
    whole, vocab, merges = (folder / n for n in ("tokenizer.json", "vocab.json", "merges.txt"))
    try:
        if whole.is_file():
            tokenizer = Tokenizer.from_file(str(whole))
        elif vocab.is_file() and merges.is_file():
            tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
            if END_OF_TEXT in json.loads(vocab.read_text(encoding="utf-8")):
                tokenizer.add_special_tokens([END_OF_TEXT])
        else:
            raise ModelNotLoaded(
                f"{folder} has no tokenizer.", remedy="tokenizer.json, or vocab.json and merges.txt"
            )
    except ModelNotLoaded:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception
        raise ModelNotLoaded(f"the tokenizer in {folder} cannot be read: {error}.") from None
    letters = set("".join(tokenizer.get_vocab(with_added_tokens=False)))
    if not letters <= set(END_OF_TEXT) | _BYTES.keys():
        strange = min(letters - _BYTES.keys())
        raise ModelNotLoaded(f"the tokenizer in {folder} is not byte-level: it has {strange!r}.")
    if bos is None or bos >= size:
        bos = tokenizer.token_to_id(END_OF_TEXT)
    return Vocab(tokenizer, size=size, bos=bos)

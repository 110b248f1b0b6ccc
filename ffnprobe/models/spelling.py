"""How tokens are spelt: which bytes a token's letters stand for, and the form it is shown in.

Three spellings circulate, and " Paris" is written in them as

    ĠParis    bytes: each letter is a byte, in GPT-2's alphabet of 256
    ▁Paris    blocks, as SentencePiece: letters are themselves, `▁` is a space, and a byte that is no
              letter of the vocabulary is a token of its own, `<0xE2>`
    Paris     words: letters are themselves; spaces are where words end and belong to none

Shown forms keep distinct tokens distinct: a space is `␣`, a newline `⏎`, a tab `⇥`; any other
character that cannot be seen, or would melt into its neighbour, is `⟨U+00A0⟩`; a byte that is only
part of a UTF-8 character, or a token that is one byte by its spelling, is `⟨E2⟩`.

>>> ByteSpelling.show("ĠParis"), BlockSpelling.show("▁Paris"), BlockSpelling.show("<0x0A>")
('␣Paris', '␣Paris', '⟨0A⟩')
"""

import re
import unicodedata
from typing import Protocol

_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_RESERVED = frozenset("␣⏎⇥⟨⟩")
# Separators, control, format, surrogate, private and unassigned characters are invisible or unstable.
_UNSEEN = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"))
_BLOCK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_of_letter() -> dict[str, int]:
    """Undo GPT-2's byte alphabet: printable bytes stand for themselves, the rest from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + order): byte for order, byte in enumerate(others)}


BYTE_OF_LETTER = _byte_of_letter()
_LETTER_OF_BYTE = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}


def show_bytes(data: bytes) -> str:
    """Show a token's bytes so that it cannot be mistaken for another's."""
    shown: list[str] = []
    before = ""
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
        elif code > 0x7F and not unicodedata.is_normalized("NFC", before + character):
            # So would half a Hangul syllable, or a second code for the same letter.
            shown.append(f"⟨U+{code:04X}⟩")
        else:
            shown.append(character)
        before = character if not 0xDC80 <= code <= 0xDCFF else ""
    return "".join(shown)


class Spelling(Protocol):
    """What the letters of a vocabulary's own tokens stand for."""

    @staticmethod
    def read(letters: str) -> bytes:
        """Return the bytes letters stand for."""

    @staticmethod
    def write(text: str) -> str:
        """Return the letters of a text."""

    @staticmethod
    def show(letters: str) -> str:
        """Show a token unmistakably."""


class ByteSpelling:
    """Each letter is a byte."""

    @staticmethod
    def read(letters: str) -> bytes:
        return bytes(BYTE_OF_LETTER[letter] for letter in letters)

    @staticmethod
    def write(text: str) -> str:
        return "".join(_LETTER_OF_BYTE[byte] for byte in text.encode())

    @staticmethod
    def show(letters: str) -> str:
        return show_bytes(ByteSpelling.read(letters))


class BlockSpelling:
    """Letters are themselves, `▁` a space, `<0xE2>` a byte."""

    @staticmethod
    def read(letters: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(letters)
        return letters.replace(_BLOCK, " ").encode() if byte is None else bytes.fromhex(byte[1])

    @staticmethod
    def write(text: str) -> str:
        return text.replace(" ", _BLOCK)

    @staticmethod
    def show(letters: str) -> str:
        # A vocabulary may hold both "A" and the byte 0x41; they are two tokens.
        byte = _BYTE_TOKEN.fullmatch(letters)
        return show_bytes(BlockSpelling.read(letters)) if byte is None else f"⟨{byte[1]}⟩"


class WordSpelling:
    """Letters are themselves; what stands between words is not kept."""

    @staticmethod
    def read(letters: str) -> bytes:
        return letters.encode()

    @staticmethod
    def write(text: str) -> str:
        return text

    @staticmethod
    def show(letters: str) -> str:
        return show_bytes(letters.encode())

"""How tokens are spelt: which bytes a token's letters stand for, and the form it is shown in.

Three spellings circulate, and " Paris" is written in them as

    ĠParis    bytes: each letter is a byte, in GPT-2's alphabet of 256
    ▁Paris    blocks, as SentencePiece: letters are themselves, `▁` is a space, and a byte that is no
              letter of the vocabulary is a token of its own, `<0xE2>`
    Paris     words: letters are themselves; spaces are where words end and belong to none

Shown forms keep distinct tokens distinct: a space is `␣`, a newline `⏎`, a tab `⇥`; any other
character that cannot be seen, or would melt into its neighbour, is `⟨U+00A0⟩`; a byte that is only
part of a UTF-8 character, or a token that is one byte by its spelling, is `⟨E2⟩`.

>>> Spelling.BYTES.show("ĠParis"), Spelling.BLOCKS.show("▁Paris"), Spelling.BLOCKS.show("<0x0A>")
('␣Paris', '␣Paris', '⟨0A⟩')
"""

import re
import unicodedata
from enum import Enum

_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_RESERVED = frozenset("␣⏎⇥⟨⟩")
# Separators, control, format, surrogate, private and unassigned characters are invisible or unstable;
# a mark would melt into its neighbour, and two spellings of one letter look alike.
_UNSEEN = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me"))
_BLOCK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


# GPT-2's alphabet: printable bytes stand for themselves, the rest are the letters from U+0100 on.
_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
_LETTER_OF_BYTE = {byte: chr(byte) for byte in _PLAIN}
_LETTER_OF_BYTE |= {byte: chr(256 + order) for order, byte in enumerate(_OTHERS)}
BYTE_OF_LETTER = {letter: byte for byte, letter in _LETTER_OF_BYTE.items()}


def show_bytes(data: bytes) -> str:
    """Show a token's bytes so that it cannot be mistaken for another's."""
    text = data.decode("utf-8", errors="surrogateescape")
    return "".join(map(_show_character, text, " " + text))


def _show_character(character: str, before: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"⟨{code - 0xDC00:02X}⟩"
    if character in _MARKS:
        return _MARKS[character]
    is_seen = (
        character not in _RESERVED
        and unicodedata.category(character) not in _UNSEEN
        and not unicodedata.combining(character)
        # Half a Hangul syllable would melt, too, and a second code for the same letter look alike.
        and (code <= 0x7F or unicodedata.is_normalized("NFC", before + character))
    )
    return character if is_seen else f"⟨U+{code:04X}⟩"


class Spelling(Enum):
    """What the letters of a vocabulary's own tokens stand for."""

    BYTES = "each letter is a byte"
    BLOCKS = "letters are themselves, `▁` a space, `<0xE2>` a byte"
    WORDS = "letters are themselves; what stands between words is not kept"

    def read(self, letters: str) -> bytes:
        """Return the bytes letters stand for."""
        if self is Spelling.BYTES:
            return bytes(BYTE_OF_LETTER[letter] for letter in letters)
        if byte := self._find_byte(letters):
            return bytes.fromhex(byte)
        return (letters.replace(_BLOCK, " ") if self is Spelling.BLOCKS else letters).encode()

    def write(self, text: str) -> str:
        """Return the letters of a text."""
        if self is Spelling.BYTES:
            return "".join(_LETTER_OF_BYTE[byte] for byte in text.encode())
        return text.replace(" ", _BLOCK) if self is Spelling.BLOCKS else text

    def show(self, letters: str) -> str:
        """Show a token unmistakably."""
        # A vocabulary may hold both "A" and the byte 0x41; they are two tokens.
        byte = self._find_byte(letters)
        return f"⟨{byte}⟩" if byte else show_bytes(self.read(letters))

    def _find_byte(self, letters: str) -> str | None:
        found = _BYTE_TOKEN.fullmatch(letters) if self is Spelling.BLOCKS else None
        return None if found is None else found[1]

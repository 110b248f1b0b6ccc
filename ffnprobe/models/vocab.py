"""The vocabulary: text ↔ token id ↔ the form a token is shown in.

`ids` splits a text that begins, as Hugging Face's tokenizer does: with a space in front where a
SentencePiece vocabulary puts one. `pieces` splits a text that continues another (an answer, a token
searched for): nothing is put in front, and " Paris" is `␣Paris`.

A text is never repaired: `one(" basket ball")` fails and suggests. A vocabulary of words (WordLevel,
WordPiece) does not keep the spaces between them; everything else must be written.

Three spellings of tokens circulate, and " Paris" is written in them as

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

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from itertools import groupby

from tokenizers import Encoding, Tokenizer, models

from ffnprobe.errors import ModelNotLoaded, TokenNotFound
from ffnprobe.models.tokenizer import is_panic, list_own, unicode_form, without_prefix

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
        if self is Spelling.BYTES:
            return bytes(BYTE_OF_LETTER[letter] for letter in letters)
        if byte := self._find_byte(letters):
            return bytes.fromhex(byte)
        return (letters.replace(_BLOCK, " ") if self is Spelling.BLOCKS else letters).encode()

    def write(self, text: str) -> str:
        if self is Spelling.BYTES:
            return "".join(_LETTER_OF_BYTE[byte] for byte in text.encode())
        return text.replace(" ", _BLOCK) if self is Spelling.BLOCKS else text

    def show(self, letters: str) -> str:
        """Show a token unmistakably."""
        # A vocabulary may hold both "A" and the byte 0x41; they are two tokens.
        byte = self._find_byte(letters)
        return f"⟨{byte}⟩" if byte else show_bytes(self.read(letters))

    def _find_byte(self, letters: str) -> str | None:
        match = _BYTE_TOKEN.fullmatch(letters) if self is Spelling.BLOCKS else None
        return None if match is None else match[1]


class Vocab:
    """A vocabulary: byte-level as GPT-2's, of letters with bytes to fall back on as Llama's, or of words."""

    def __init__(
        self, tokenizer: Tokenizer, *, size: int, bos: int | None, is_begun_by_bos: bool = True
    ) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.bos = bos
        self.is_begun_by_bos = is_begun_by_bos and bos is not None
        # A model may have more rows than its tokenizer has tokens (padding), never fewer; only
        # what was added to a vocabulary later (a slot for an image) may have no row.
        own, added = list_own(tokenizer, size=size), tokenizer.get_added_tokens_decoder()
        texts = own.keys() - {token.content for token in added.values()}
        self._spelling = _find_spelling(tokenizer, set("".join(texts)))
        find = tokenizer.model.token_to_id
        # Added tokens stand for their very text, unless they only name a token of the vocabulary.
        self._literal = {
            number: token.content for number, token in added.items()
            if token.special or self._spelling is Spelling.BYTES or find(token.content) != number
        }  # fmt: skip
        # NeoX adds runs of spaces to a vocabulary that has them: two tokens of the same bytes.
        self._twins = {
            number for number, text in self._literal.items()
            if find(self._spelling.write(text)) not in (None, number)
        }  # fmt: skip

    def __len__(self) -> int:
        return self.size

    def puts_bos(self, asked: bool | None) -> bool:
        """Decide whether BOS goes in front of a text: as asked, else unless the model's files say no."""
        return self.is_begun_by_bos if asked is None else asked

    def ids(self, text: str) -> list[int]:
        """Split a text that begins into token ids; no special token is added."""
        return self._split(text, self.tokenizer)

    def pieces(self, text: str) -> list[int]:
        """Split a text that continues another into token ids; nothing is prepended."""
        return self._split(text, self._without_prefix)

    @cached_property
    def _without_prefix(self) -> Tokenizer:
        return without_prefix(self.tokenizer)

    def _split(self, text: str, tokenizer: Tokenizer) -> list[int]:
        try:
            encoding = tokenizer.encode(text, add_special_tokens=False)
        except TypeError:  # the tokenizers library's word for bytes that are no UTF-8
            raise _unwritten(text) from None
        except Exception as error:  # the tokenizers library raises bare Exception
            raise TokenNotFound(f"{_start(text)} cannot be split: {error}.") from None
        except BaseException as panic:
            if not is_panic(panic):
                raise
            raise TokenNotFound(
                f"the tokenizer gave up on this text of {len(text):,} characters: {panic}.",
                remedy="a shorter text, or a tokenizer with other rules",
            ) from None
        tokens: list[int] = encoding.ids
        if self._spelling is Spelling.WORDS:
            self._check_words(text, encoding)
        elif self.text(tokens) != text and not self._begins(text, tokens):
            form = unicode_form(tokenizer)
            if form is not None and not unicodedata.is_normalized(form, text):
                raise TokenNotFound(
                    f"{text!r} is not in Unicode's form {form}, the only one this vocabulary writes.",
                    remedy=f'unicodedata.normalize("{form}", text)',
                )
            raise _unwritten(text)
        for token in tokens:
            if token >= self.size:
                shown = self.show(token)
                raise TokenNotFound(f"{text!r} holds {shown}, which the model has no row for.")
        return tokens

    def _check_words(self, text: str, encoding: Encoding) -> None:
        """Refuse a text with a word, or a part of one, that the vocabulary does not have."""
        unknown = getattr(self.tokenizer.model, "unk_token", None)
        covered: set[int] = set()
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            if token == unknown:
                word = _start(text[start:end])
                raise TokenNotFound(f"{word} is not in this vocabulary of words.")
            covered.update(range(start, end))
        for place, character in enumerate(text):
            if place not in covered and not character.isspace():
                raise TokenNotFound(
                    f"{_start(text)} holds {character!r}, which this vocabulary cannot write."
                )

    def _begins(self, text: str, tokens: Sequence[int]) -> bool:
        """Whether tokens are a text but for spaces put in front of it and after special tokens."""
        if self._without_prefix is self.tokenizer:
            return False
        for is_literal, run in groupby(tokens, key=self._literal.__contains__):
            written = self.text(run)
            if not is_literal and not text.startswith(written):
                written = written.removeprefix(" ")
            if not text.startswith(written):
                return False
            text = text[len(written) :]
        return not text

    def bytes(self, token: int) -> bytes:
        """Return the bytes a token stands for; ids without a token have none."""
        if token in self._literal:
            return self._literal[token].encode()
        letters = self.tokenizer.id_to_token(token)
        return b"" if letters is None else self._spelling.read(letters)

    def text(self, tokens: Iterable[int]) -> str:
        """Join tokens into text; bytes that are no character become U+FFFD."""
        if self._spelling is Spelling.WORDS:
            own = [token for token in tokens if self.tokenizer.id_to_token(token) is not None]
            return str(self.tokenizer.decode(own, skip_special_tokens=False))
        return b"".join(self.bytes(token) for token in tokens).decode("utf-8", errors="replace")

    def show(self, token: int) -> str:
        """Show one token unmistakably: `␣Paris`, `⏎`, `⟨E2⟩⟨80⟩`."""
        if token in self._literal:
            shown = show_bytes(self._literal[token].encode())
            return f"{shown}⟨id:{token}⟩" if token in self._twins else shown
        letters = self.tokenizer.id_to_token(token)
        return self._spelling.show(letters) if letters else f"⟨id:{token}⟩"

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """Every token's shown form, by id."""
        return tuple(self.show(token) for token in range(self.size))

    def show_all(self, tokens: Sequence[int]) -> list[str]:
        return [self.show(token) for token in tokens]

    def one(self, text: str, *, use: str = "a token") -> int:
        """Return the id of a text that is exactly one token, or list its pieces and suggest."""
        if not text:
            raise TokenNotFound(f'"" is not a token; {use} needs one.', remedy='" basketball"')
        tokens = self.pieces(text)
        if len(tokens) == 1:
            return tokens[0]
        shown = " ".join(f'"{token}"' for token in self.show_all(tokens))
        raise TokenNotFound(
            f'"{text}" is {len(tokens)} tokens here: {shown}; {use} needs one.',
            remedy=" or ".join(f'"{word}"' for word in self._suggest(text)) or None,
        )

    def _suggest(self, text: str) -> list[str]:
        """Name up to three single tokens a text may have been meant for, the nearest first."""
        bare = "".join(text.split())
        guesses = [" " + bare, bare, " " + bare.lower(), " " + bare.capitalize()]
        tokens = [guess for guess in guesses if bare and self._is_one(guess)]
        if not tokens:
            words = {word for word in map(self._word, range(self.size)) if len(word.strip()) > 2}
            near = difflib.get_close_matches(" " + bare.lower(), sorted(words), 3, cutoff=0.6)
            tokens = [word for word in near if self._is_one(word)]
        return list(dict.fromkeys(tokens))[:3]

    def _is_one(self, text: str) -> bool:
        try:
            return len(self.pieces(text)) == 1
        except TokenNotFound:
            return False

    def _word(self, token: int) -> str:
        """Return a token's text where it is whole characters, else nothing."""
        try:
            return self.bytes(token).decode("utf-8")
        except UnicodeDecodeError:
            return ""


def _find_spelling(tokenizer: Tokenizer, letters: set[str]) -> Spelling:
    """Tell how a vocabulary's own tokens, of these letters, are spelt, or refuse."""
    if isinstance(tokenizer.model, models.BPE):
        if letters <= BYTE_OF_LETTER.keys():
            return Spelling.BYTES
        if tokenizer.model.byte_fallback:
            return Spelling.BLOCKS
    if isinstance(tokenizer.model, models.WordLevel | models.WordPiece):
        return Spelling.WORDS
    strange = min(letters - BYTE_OF_LETTER.keys(), default=None)
    raise ModelNotLoaded(
        "the tokenizer is neither byte-level BPE nor BPE with bytes to fall back on, nor of words"
        + (f": it has {strange!r}." if strange else "."),
        remedy='in Python load(…, tokenizer="ids"), for tokens as numbers',
    )


def _unwritten(text: str) -> TokenNotFound:
    return TokenNotFound(f"{text!r} holds characters this vocabulary cannot write.")


def _start(text: str) -> str:
    """Show a text in an error, not all of one that is long."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}…"

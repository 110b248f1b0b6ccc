"""A checksum inside its file notices every changed byte, and a file in the place of another."""

import mmap
import random

import pytest

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import BLANK, is_sealed, seal

PLAIN = b'{"rank": 1, "checksum": "' + BLANK + b'", "token": "xxh3:' + b"ab" * 16 + b'"}'
DATA = seal(PLAIN, bound="this")


def test_every_flipped_bit_is_noticed_but_in_what_only_looks_like_a_checksum():
    lookalike = DATA.index(b"abab")
    for place in range(len(DATA)):
        if lookalike <= place < lookalike + 32:
            continue
        for bit in range(8):
            flipped = bytearray(DATA)
            flipped[place] ^= 1 << bit
            assert not is_sealed(bytes(flipped), bound="this")


def test_cut_or_longer_data_and_another_place_are_noticed():
    assert is_sealed(DATA, bound="this") is True
    assert is_sealed(DATA, bound="that") is False
    assert not any(is_sealed(DATA[:end], bound="this") for end in range(len(DATA)))
    assert is_sealed(DATA + b"\0", bound="this") is False


def test_without_a_checksum_nothing_is_said():
    assert is_sealed(b"") is None
    assert is_sealed(b'{"rank": 1}') is None


def test_a_file_is_checked_without_being_copied(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(seal(random.Random(0).randbytes(10**6) + BLANK))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert is_sealed(data) is True


def test_two_blanks_are_refused():
    with pytest.raises(FileNotWritten, match="as an empty checksum does"):
        seal(BLANK + BLANK)

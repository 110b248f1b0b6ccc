"""How an answer given on the command line was understood."""

from typing import TYPE_CHECKING

from ffnprobe.cli.command import Common

if TYPE_CHECKING:
    from ffnprobe.models.vocab import Vocab


def note_spelling(common: Common, vocab: "Vocab", answer: str) -> None:
    """Say how an answer was split, and that it may have been meant with a space in front."""
    pieces = vocab.pieces(answer)
    if len(pieces) > 1:
        shown = " ".join(f'"{piece}"' for piece in vocab.show_all(pieces))
        common.note(f'"{answer}" is {len(pieces)} tokens here: {shown}; each is predicted in turn')
    if not answer.startswith(" ") and len(vocab.pieces(" " + answer)) == 1:
        common.note(f'with a space in front, " {answer}", it is one token, and another one')

"""How far a scan is and what it knows so far, as the one part of its store.

It holds the vocabulary as it is shown, too, so that examples need no model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ffnprobe.corpora.kept import Kept, read_kept
from ffnprobe.corpora.passages import Done
from ffnprobe.corpora.statistics import Statistics, from_tensors
from ffnprobe.store import Store

SCAN = "scan"


@dataclass(frozen=True)
class State:
    """How far a scan is, and what it knows so far."""

    statistics: Statistics
    done: Done
    is_finished: bool
    kept: Kept


def write_state(store: Store, state: State, tokens: Sequence[str]) -> None:
    """Replace the state."""
    said = {"done": asdict(state.done), "is_finished": state.is_finished, "vocabulary": tokens}
    store.write(SCAN, said, state.statistics.tensors() | state.kept.tensors())


def read_state(store: Store) -> tuple[State, tuple[str, ...]] | None:
    """Read the last state written, and the tokens; None before the first."""
    part = store.read(SCAN)
    if part is None:
        return None
    said, tensors = part
    done = Done(**said["done"])
    statistics = from_tensors(tensors, done.tokens)
    state = State(statistics, done, said["is_finished"], read_kept(tensors))
    return state, tuple(said["vocabulary"])

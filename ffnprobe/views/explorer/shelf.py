"""A shelf of what was computed lately: bounded, the least recently used goes first.

>>> shelf = Shelf(most=2)
>>> shelf.take("a", lambda: 1), shelf.take("a", lambda: 2)
(1, 1)
>>> shelf.put("b", 2); shelf.put("c", 3)
>>> shelf.find("a") is None, len(shelf)
(True, 2)
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any

BYTES = 512 * 2**20


class Shelf:
    """Values by key, at most so many and so many bytes; the last one put is always kept."""

    def __init__(self, most: int = 64, *, most_bytes: int = BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._turn = RLock()

    def __len__(self) -> int:
        return len(self._held)

    def find(self, key: Hashable) -> Any:
        """Return what is kept under a key, or None."""
        with self._turn:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: Hashable, value: Any, size: int = 0) -> None:
        """Keep a value of so many bytes, and let go of the oldest beyond the bounds."""
        with self._turn:
            self._held[key] = (value, size)
            self._held.move_to_end(key)
            while len(self._held) > 1 and (len(self._held) > self._most or self._bytes > self._most_bytes):  # fmt: skip
                self._held.popitem(last=False)

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._held.values())

    def take(
        self, key: Hashable, make: Callable[[], Any], *, size: Callable[[Any], int] | None = None
    ) -> Any:
        """Return what is kept under a key, or make and keep it: one at a time, nothing twice."""
        with self._turn:
            found = self.find(key)
            if found is None:
                found = make()
                self.put(key, found, 0 if size is None else size(found))
            return found

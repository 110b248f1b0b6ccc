"""A bounded cache that drops the least recently used value first, safe to use from several threads.

>>> cache = LRUCache(most=2)
>>> cache.get_or_make("a", lambda: 1), cache.get_or_make("a", lambda: 2)
(1, 1)
>>> cache.put("b", 2); cache.put("c", 3)
>>> cache.get("a") is None, len(cache)
(True, 2)
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

BYTES = 512 * 2**20
T = TypeVar("T")


class LRUCache:
    """Values by key, bounded in number and in bytes; the last one put is always kept."""

    def __init__(self, most: int = 64, *, most_bytes: int = BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> Any:
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: Hashable, value: Any, size: int = 0) -> None:
        """Keep a value of this size in bytes, and drop the oldest beyond the bounds."""
        with self._lock:
            self._held[key] = (value, size)
            self._held.move_to_end(key)
            held = sum(kept for _, kept in self._held.values())
            while len(self._held) > 1 and (len(self._held) > self._most or held > self._most_bytes):
                held -= self._held.popitem(last=False)[1][1]

    def get_or_make(
        self, key: Hashable, make: Callable[[], T], *, size: Callable[[T], int] = lambda _: 0
    ) -> T:
        """Return the value of a key, or make and keep it; no value is made twice."""
        with self._lock:
            value: T | None = self.get(key)
            if value is None:
                value = make()
                self.put(key, value, size(value))
            return value

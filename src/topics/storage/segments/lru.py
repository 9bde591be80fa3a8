"""A cache bounded by bytes that forgets what was used longest ago.

Readers on a pool and the maintenance thread share it with the owner of the state, so each step is
done under a lock. The values are shared between these threads, too.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Values with a stated size; the newest one is kept even if it alone exceeds the budget."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.used_bytes = 0
        self._lock = threading.Lock()  # guards the order of items and the byte count

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """The cached value, now the most recently used one."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep `value`, in place of an earlier one under the same key."""
        with self._lock:
            self._drop(key)
            self._items[key] = (value, size)
            self.used_bytes += size
            while self.used_bytes > self._budget and len(self._items) > 1:
                _, (_, evicted_size) = self._items.popitem(last=False)
                self.used_bytes -= evicted_size

    def drop(self, key: K) -> None:
        """Forget one value; unknown keys are fine."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: K) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self.used_bytes -= item[1]

"""Where the bytes of records live, behind one number.

A *location* is a u64: the id of a source in the upper 32 bits, an offset in the lower. An index
holds locations and nothing else, so it stays 8 bytes a record whether the record lies in a log
file, in memory or nowhere any more.

A source answers in two steps. `view` gives bytes that are already in memory and that this process
put there itself: they need no check. `pread` goes to the disk, may fail, and its bytes are only as
good as their checksums, which the caller verifies.
"""

import mmap
from collections.abc import Iterator
from itertools import count
from typing import Final, Protocol

from topics.storage.handles import Handles

OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
MAX_OFFSET: Final = OFFSET_MASK


class Source(Protocol):
    """Some bytes under offsets that never change their meaning."""

    def view(self, offset: int, size: int) -> bytes | None:
        """The bytes if they are in memory and trusted, else None."""
        ...

    def pread(self, offset: int, size: int) -> bytes:
        """The bytes from the disk, unverified; fewer where the file ends; may raise OSError."""
        ...

    def close(self) -> None:
        """Release what the source holds; a second call does nothing."""
        ...


def location(source_id: int, offset: int) -> int:
    """Both parts as one number."""
    return source_id << OFFSET_BITS | offset


def split_location(where: int) -> tuple[int, int]:
    """Source id and offset of a location."""
    return where >> OFFSET_BITS, where & OFFSET_MASK


class Sources:
    """All sources of a store. Ids start at 1 and are never reused: 0 means "not stored"."""

    def __init__(self) -> None:
        self._by_id: dict[int, Source] = {}
        self._ids = count(1)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._by_id))

    def add(self, source: Source) -> int:
        """Take in a source; returns the id its locations carry."""
        source_id = next(self._ids)
        self._by_id[source_id] = source
        return source_id

    def get(self, source_id: int) -> Source:
        """The source; `FileNotFoundError` once it was dropped."""
        try:
            return self._by_id[source_id]
        except KeyError as error:
            raise FileNotFoundError(f"source {source_id} was given back") from error

    def drop(self, source_id: int) -> None:
        """Forget a source to which no location points any more."""
        source = self._by_id.pop(source_id, None)
        if source is not None:
            source.close()

    def close(self) -> None:
        for source_id in self:
            self.drop(source_id)


class Arena:
    """Append-only bytes in memory: records that have no file, or none yet.

    A topic uses several small arenas instead of one large one, so that memory comes back when all
    records of an arena are dead.
    """

    __slots__ = ("_bytes", "_closed", "capacity")

    def __init__(self, capacity: int = MAX_OFFSET) -> None:
        self._bytes = bytearray()
        self._closed = False
        self.capacity = min(capacity, MAX_OFFSET)

    def __len__(self) -> int:
        return len(self._bytes)

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit; an empty arena takes anything that can be addressed."""
        used = len(self._bytes)
        return used + size <= (self.capacity if used else MAX_OFFSET)

    def append(self, data: bytes | memoryview) -> int:
        """Keep the bytes; returns the offset of the first."""
        if not self.has_room(len(data)):
            raise ValueError(f"{len(data)} bytes do not fit the arena")
        offset = len(self._bytes)
        self._bytes += data
        return offset

    def view(self, offset: int, size: int) -> bytes | None:
        end = offset + size
        return bytes(self._bytes[offset:end]) if end <= len(self._bytes) else None

    def pread(self, offset: int, size: int) -> bytes:
        if self._closed:
            # To a reader on its way this is a file that went: its records are elsewhere now.
            raise FileNotFoundError("this memory was given back")
        return bytes(self._bytes[offset : offset + size])

    def close(self) -> None:
        self._closed = True
        self._bytes = bytearray()


class Ring:
    """The newest bytes of one log shard, mirrored in memory for readers near the head.

    Bytes have a position in the endless stream of everything the shard wrote; position modulo size
    is their place in the ring. No object and no bookkeeping per record. The memory is anonymous and
    private, so pages cost nothing before their first use.

    One writer thread, any readers: `_claimed` rises before bytes are overwritten and `_end` after
    they are in place, and a reader looks at `_claimed` again once it has its copy.
    """

    __slots__ = ("_claimed", "_end", "_map", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._claimed = 0
        self._end = 0

    @property
    def end(self) -> int:
        """The position the next byte gets."""
        return self._end

    def put(self, data: bytes | memoryview) -> None:
        """Mirror bytes that were just written to the log."""
        start = self._end
        self._claimed = end = start + len(data)
        at = start % self._size
        if at + len(data) <= self._size:
            self._map[at : at + len(data)] = data
        else:
            self._put_around(data, end)
        self._end = end

    def _put_around(self, data: bytes | memoryview, end: int) -> None:
        data = data[-self._size :]
        at = (end - len(data)) % self._size
        head = min(len(data), self._size - at)
        self._map[at : at + head] = data[:head]
        self._map[: len(data) - head] = data[head:]

    def get(self, position: int, size: int) -> bytes | None:
        """The bytes from `position` on, or None when they are no longer, or not yet, here."""
        if position + self._size < self._claimed or position + size > self._end:
            return None
        at = position % self._size
        end = at + size
        if end <= self._size:
            found = self._map[at:end]
        else:
            found = self._map[at:] + self._map[: end - self._size]
        return found if position + self._size >= self._claimed else None

    def close(self) -> None:
        """Give the memory back; nothing is found here afterwards."""
        self._claimed = self._end = 0
        self._map.close()


class WalSource:
    """One log file: its newest bytes in the shard's ring, all of them on disk."""

    __slots__ = ("_handles", "_ring", "_start", "path")

    def __init__(
        self, path: str, handles: Handles, ring: Ring | None = None, *, ring_start: int = 0
    ) -> None:
        self.path = path
        self._handles = handles
        self._ring = ring
        self._start = ring_start  # ring position of the file's first byte

    def view(self, offset: int, size: int) -> bytes | None:
        ring = self._ring
        return None if ring is None else ring.get(self._start + offset, size)

    def pread(self, offset: int, size: int) -> bytes:
        return self._handles.pread(self.path, size, offset)

    def close(self) -> None:
        self._ring = None
        self._handles.forget(self.path)

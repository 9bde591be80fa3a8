"""What a simulated disk holds: files with un-synced writes, directories with un-synced names.

Each node has two states: what a running program sees, and what would survive a power cut. The
list of pending changes leads from the second to the first. Syncing replays the list onto the
durable state; a crash replays a damaged selection of it (see `_damage`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from topics.storage.fs import Buffer


class Content:
    """Bytes of a file whose tail may be a hole: a preallocated file costs no memory.

    `data` holds the leading bytes; everything from there to `size` reads zero.
    """

    __slots__ = ("data", "size")

    def __init__(self, data: Buffer = b"", size: int | None = None) -> None:
        self.data = bytearray(data)
        self.size = len(self.data) if size is None else size

    def copy(self) -> "Content":
        return Content(self.data, self.size)

    def read(self, size: int, offset: int) -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        found = bytes(memoryview(self.data)[offset:end])
        return found + bytes(end - offset - len(found))

    def write(self, data: Buffer, offset: int) -> None:
        end = offset + len(data)
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size


@dataclass(slots=True)
class Write:
    """Bytes handed to the page cache."""

    offset: int
    data: bytearray

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def apply(self, content: Content) -> None:
        if self.data:
            content.write(self.data, self.offset)


@dataclass(slots=True)
class Resize:
    """A new size set by truncate or fallocate."""

    size: int

    def apply(self, content: Content) -> None:
        content.resize(self.size)


Change: TypeAlias = Write | Resize


class Inode:
    """A regular file."""

    __slots__ = (
        "allocated",
        "durable",
        "handles",
        "late",
        "linked",
        "lock_era",
        "lost",
        "path",
        "pending",
        "seen",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        """The newest name, kept after an unlink; lies about some files go by it."""
        self.seen = Content()
        self.durable = Content()
        self.pending: list[Change] = []
        self.allocated = 0
        self.handles = 0
        self.linked = False
        self.lock_era = -1
        """The era of the disk in which this file was locked; locks die with their process."""
        self.lost = False
        """Whether the file shows bytes that are neither durable nor pending."""
        self.late: deque[int] = deque()
        """With late syncs: how many pending changes each acknowledged sync should have covered."""

    def write(self, data: Buffer, offset: int) -> None:
        kept = bytearray(data)
        self.seen.write(kept, offset)
        self.pending.append(Write(offset, kept))
        self.allocated = max(self.allocated, offset + len(kept))

    def resize(self, size: int) -> None:
        self.seen.resize(size)
        self.pending.append(Resize(size))
        self.allocated = min(self.allocated, size)

    def promote(self, count: int | None = None) -> None:
        """Make the first `count` pending changes durable, all of them by default."""
        if count is None:
            count = len(self.pending)
            self.late.clear()
        for change in self.pending[:count]:
            change.apply(self.durable)
        del self.pending[:count]

    def promote_late(self, syncs: int) -> None:
        """Acknowledge a sync now but keep only what was there `syncs` syncs ago."""
        self.late.append(len(self.pending))
        if len(self.late) > syncs:
            count = self.late.popleft()
            self.promote(count)
            self.late = deque(mark - count for mark in self.late)

    def lose(self) -> None:
        """Forget the pending changes but keep showing them: clean pages that never hit the disk."""
        self.lost = True
        self.pending.clear()
        self.late.clear()

    def settle(self) -> None:
        """Make everything the file shows durable, also what the device had lost."""
        self.survive(self.seen.copy())

    def survive(self, durable: Content) -> None:
        """Come back from a power cut with these bytes."""
        self.durable = durable
        self.seen = durable.copy()
        self.lost = False
        self.pending.clear()
        self.late.clear()
        self.allocated = max(durable.size, len(durable.data))

    def copy(self) -> "Inode":
        twin = Inode(self.path)
        twin.seen = self.seen.copy()
        twin.durable = self.durable.copy()
        twin.pending = [
            Write(change.offset, bytearray(change.data))
            if isinstance(change, Write)
            else Resize(change.size)
            for change in self.pending
        ]
        twin.allocated = self.allocated
        twin.linked = self.linked
        twin.lost = self.lost
        twin.late = deque(self.late)
        return twin


class DirNode:
    """Names and what they stand for; a change of names is pending until the directory syncs."""

    __slots__ = ("durable", "pending", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Renaming] = []


Node: TypeAlias = Inode | DirNode


@dataclass(slots=True, eq=False)
class Renaming:
    """One atomic change of names: all of its entries take effect together or none does.

    An entry is (directory, name, node); a node of `None` removes the name. A rename between two
    directories waits in both and is one transaction, as in a journalling file system: that is what
    makes "old name or new name, never neither" true.
    """

    entries: list[tuple[DirNode, str, Node | None]]
    settled: bool = False

    def show(self) -> None:
        """Make the change visible and leave it pending in every directory it touches."""
        for directory, name, node in self.entries:
            _set_entry(directory.seen, name, node)
            if not directory.pending or directory.pending[-1] is not self:
                directory.pending.append(self)

    def settle(self) -> None:
        """Make the change durable, after everything that came before it."""
        if self.settled:
            return
        self.settled = True
        for directory in self.directories():
            while directory.pending and directory.pending[0] is not self:
                directory.pending[0].settle()
        for directory, name, node in self.entries:
            _set_entry(directory.durable, name, node)
        for directory in self.directories():
            directory.pending.remove(self)

    def directories(self) -> Sequence[DirNode]:
        return list(dict.fromkeys(directory for directory, _, _ in self.entries))


def _set_entry(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node

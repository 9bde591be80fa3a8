"""The state behind a `SimDisk`: the tree of nodes, the space used, the lies the device tells.

Everything here works on nodes. Handles, paths as arguments and the public tools of a test live in
`_mount` and `disk`.
"""

import errno
import hashlib
import os
import posixpath
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from typing import TypeAlias

from topics.storage.fs import Buffer
from topics.testing._damage import SECTOR
from topics.testing._inode import DirNode, Inode, Node, Renaming, Resize, Write


@dataclass(slots=True)
class Lies:
    """How the device deviates from what it reports; by default it does not."""

    lying: str | None = None
    late: int = 0
    gates: list[str] = field(default_factory=list)
    psow_off: bool = False
    size_first: bool = False


class Platter:
    """The one mutable state shared by all views of a disk; hold `mutex` around every use."""

    def __init__(self, capacity: int | None) -> None:
        self.mutex = threading.RLock()
        self.root = DirNode()
        self.era = 0
        self.boot = 0
        self.capacity = capacity
        self.used = 0
        self.lies = Lies()

    # Paths.

    def lookup(self, path: str) -> Node | None:
        """The node with this name, or None when only the last part is missing."""
        parts = _parts(path)
        if not parts:
            return self.root
        return self.parent(path).seen.get(parts[-1])

    def parent(self, path: str) -> DirNode:
        """The directory that holds, or would hold, this name."""
        node: Node = self.root
        for part in _parts(path)[:-1]:
            if not isinstance(node, DirNode):
                raise os_error(errno.ENOTDIR, path)
            found = node.seen.get(part)
            if found is None:
                raise os_error(errno.ENOENT, path)
            node = found
        if not isinstance(node, DirNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def directory(self, path: str) -> DirNode:
        node = self._existing(path)
        if not isinstance(node, DirNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> Inode:
        node = self._existing(path)
        if not isinstance(node, Inode):
            raise os_error(errno.EISDIR, path)
        return node

    def _existing(self, path: str) -> Node:
        node = self.lookup(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    # Names.

    def create(self, path: str) -> Inode:
        inode = Inode(path)
        inode.linked = True
        Renaming([(self.parent(path), name_of(path), inode)]).show()
        return inode

    def mkdir(self, path: str) -> None:
        parent = self.parent(path)
        self.charge(SECTOR)
        Renaming([(parent, name_of(path), DirNode())]).show()

    def unlink(self, path: str) -> None:
        inode = self.file(path)
        Renaming([(self.parent(path), name_of(path), None)]).show()
        self._unlinked(inode)

    def rmdir(self, path: str) -> None:
        if self.directory(path).seen:
            raise os_error(errno.ENOTEMPTY, path)
        Renaming([(self.parent(path), name_of(path), None)]).show()
        self.used -= SECTOR

    def rename(self, source: str, target: str) -> None:
        node = self._existing(source)
        replaced = self.lookup(target)
        if replaced is node:
            return
        _check_rename(node, replaced, source, target)
        gone = (self.parent(source), name_of(source), None)
        Renaming([gone, (self.parent(target), name_of(target), node)]).show()
        _note_new_path(node, target)
        if isinstance(replaced, Inode):
            self._unlinked(replaced)
        elif replaced is not None:
            self.used -= SECTOR

    def _unlinked(self, inode: Inode) -> None:
        inode.linked = False
        self.release_if_unused(inode)

    def release_if_unused(self, inode: Inode) -> None:
        """Give the space back once neither a name nor a handle refers to the file."""
        if not inode.linked and not inode.handles:
            self.used -= inode.allocated

    # Space.

    def room(self) -> int | None:
        return None if self.capacity is None else max(0, self.capacity - self.used)

    def charge(self, size: int) -> None:
        """Take `size` bytes of the disk, or fail with ENOSPC and take none."""
        room = self.room()
        if room is not None and size > room:
            raise os_error(errno.ENOSPC)
        self.used += size

    # Contents.

    def write(self, inode: Inode, data: Buffer, offset: int) -> int:
        """Write what fits; like a real disk, ENOSPC comes only when nothing does."""
        room = self.room()
        if room is not None:
            data = data[: max(0, inode.allocated + room - offset)] or data
        growth = max(0, offset + len(data) - inode.allocated)
        self.charge(growth)
        inode.write(data, offset)
        return len(data)

    def resize(self, inode: Inode, size: int) -> None:
        before = inode.allocated
        inode.resize(size)
        self.used -= before - inode.allocated

    def fallocate(self, inode: Inode, size: int) -> None:
        growth = max(0, size - inode.allocated)
        self.charge(growth)
        if size > inode.seen.size:
            inode.resize(size)
        inode.allocated += growth

    def sync(self, inode: Inode) -> None:
        lies = self.lies
        for gate in lies.gates:
            if fnmatch(inode.path, gate):
                lies.gates.remove(gate)
                inode.lose()
                raise os_error(errno.EIO, inode.path)
        if lies.lying is not None and fnmatch(inode.path, lies.lying):
            return
        if lies.late:
            inode.promote_late(lies.late)
        else:
            inode.promote()

    def sync_dir(self, directory: DirNode) -> None:
        for step in list(directory.pending):
            step.settle()

    # The whole tree.

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Every visible file with its path from the root, in order of path."""
        yield from _files_below(self.root, "")

    def directories(self) -> list[DirNode]:
        """Every directory, also those that only the durable or the pending state knows."""
        found = {self.root: None}
        waiting = [self.root]
        while waiting:
            for child in _children(waiting.pop()):
                if child not in found:
                    found[child] = None
                    waiting.append(child)
        return list(found)

    def recount(self) -> None:
        """Start anew from the visible tree: no handle survives, no nameless file keeps space."""
        self.used = 0
        waiting = [self.root]
        while waiting:
            for node in waiting.pop().seen.values():
                if isinstance(node, DirNode):
                    self.used += SECTOR
                    waiting.append(node)
                else:
                    node.handles = 0
                    node.linked = True
                    self.used += node.allocated

    def boot_id(self) -> bytes:
        return hashlib.blake2b(b"boot %d" % self.boot, digest_size=16).digest()


Twins: TypeAlias = dict[Node | Renaming, Node | Renaming]
"""Which copy stands for which original, so that a node reached twice stays one node."""


def copy_tree(root: DirNode) -> DirNode:
    """An independent tree with the same visible, durable and pending state."""
    return _copy_directory(root, {})


def _copy_directory(source: DirNode, twins: Twins) -> DirNode:
    known = twins.get(source)
    if isinstance(known, DirNode):
        return known
    twin = DirNode()
    twins[source] = twin
    twin.seen = {name: _copy_node(node, twins) for name, node in source.seen.items()}
    twin.durable = {name: _copy_node(node, twins) for name, node in source.durable.items()}
    twin.pending = [_copy_step(step, twins) for step in source.pending]
    return twin


def _copy_node(source: Node, twins: Twins) -> Node:
    if isinstance(source, DirNode):
        return _copy_directory(source, twins)
    known = twins.get(source)
    if not isinstance(known, Inode):
        known = twins[source] = source.copy()
    return known


def _copy_step(source: Renaming, twins: Twins) -> Renaming:
    known = twins.get(source)
    if not isinstance(known, Renaming):
        known = twins[source] = Renaming([])
        known.entries = [
            (
                _copy_directory(directory, twins),
                name,
                None if node is None else _copy_node(node, twins),
            )
            for directory, name, node in source.entries
        ]
    return known


def poke(inode: Inode, data: bytes, offset: int) -> None:
    """Change bytes in every state of the file at once, as if they had always been so."""
    inode.seen.write(data, offset)
    inode.durable.write(data, offset)
    for change in inode.pending:
        if isinstance(change, Resize):
            change.size = max(change.size, offset + len(data))
        elif isinstance(change, Write):
            start, end = max(offset, change.offset), min(offset + len(data), change.end)
            if start < end:
                piece = data[start - offset : end - offset]
                change.data[start - change.offset : end - change.offset] = piece


def os_error(code: int, path: str | None = None) -> OSError:
    """The error the operating system would raise, as its own subclass."""
    if path is None:
        return OSError(code, os.strerror(code))
    return OSError(code, os.strerror(code), path)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part not in ("", "."))


def name_of(path: str) -> str:
    return _parts(path)[-1]


def _check_rename(node: Node, replaced: Node | None, source: str, target: str) -> None:
    if isinstance(node, DirNode) and _parts(target)[: len(_parts(source))] == _parts(source):
        raise os_error(errno.EINVAL, target)
    if isinstance(node, Inode) and isinstance(replaced, DirNode):
        raise os_error(errno.EISDIR, target)
    if isinstance(node, DirNode) and isinstance(replaced, Inode):
        raise os_error(errno.ENOTDIR, target)
    if isinstance(replaced, DirNode) and replaced.seen:
        raise os_error(errno.ENOTEMPTY, target)


def _note_new_path(node: Node, path: str) -> None:
    if isinstance(node, Inode):
        node.path = path
    else:
        for name, child in node.seen.items():
            _note_new_path(child, f"{path}/{name}")


def _files_below(directory: DirNode, prefix: str) -> Iterator[tuple[str, Inode]]:
    for name, node in sorted(directory.seen.items()):
        path = f"{prefix}/{name}"
        if isinstance(node, Inode):
            yield path, node
        else:
            yield from _files_below(node, path)


def _children(directory: DirNode) -> Iterator[DirNode]:
    nodes = [*directory.seen.values(), *directory.durable.values()]
    for step in directory.pending:
        yield from step.directories()
        nodes.extend(node for _, _, node in step.entries if node is not None)
    for node in nodes:
        if isinstance(node, DirNode):
            yield node

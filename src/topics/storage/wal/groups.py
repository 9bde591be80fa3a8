"""Log groups as they lie on disk: which files there are and whether any is missing.

The directory listing is the truth; CURRENT is a check on it. Files form a chain: each header says
which file came before, how long that one was and which frame comes first here. A chain that does
not close means a file was lost or exchanged, and then nothing is opened.

Only reads. A file that vanishes between listing and opening raises `FileNotFoundError`: a reader
beside a running owner starts over, an owner cannot see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec

from topics.core.facts import FileHeader
from topics.errors import RefusalReason, RefusedToOpen
from topics.storage import identity, layout
from topics.storage.frames.buffer import Frame, decode_at
from topics.storage.frames.header import ForeignFrame
from topics.storage.fs import Fs, read_exact, read_file
from topics.storage.wal.files import HEADER_SIZE
from topics.storage.wal.submission import Position

T = TypeVar("T")


class Group(msgspec.Struct):
    """One directory of log files."""

    key: str
    directory: str
    first_lfns: list[int]
    """The files by their first frame, oldest first."""
    current: identity.Current | None = None
    warnings: list[str] = msgspec.field(default_factory=list)

    def path(self, first_lfn: int) -> str:
        return f"{self.directory}/{layout.wal_name(first_lfn)}"


class LogFile(NamedTuple):
    """A log file whose header was found in order."""

    path: str
    size: int
    header: FileHeader


def refusal(
    reason: RefusalReason, message: str, file: str, offset: int | None = None
) -> RefusedToOpen:
    """A refusal that names the file first."""
    return RefusedToOpen(reason, message=f"{file}: {message}", file=file, offset=offset)


def reading(path: str, action: Callable[[], T]) -> T:
    """Run a read; an I/O error refuses the start, since nothing is known about those bytes."""
    try:
        return action()
    except FileNotFoundError:
        raise
    except (OSError, EOFError) as error:
        message = f"cannot be read ({error}); check the disk and try again"
        raise refusal("io_error", message, path) from error


def discover(fs: Fs, wal_dir: str) -> list[Group]:
    """Every group under `wal/`: the flat one, then the shards in order.

    A group may have no files left, only the CURRENT that names a lost one.
    """
    if not fs.exists(wal_dir):
        return []
    names = reading(wal_dir, lambda: fs.listdir(wal_dir))
    numbers = {name: layout.parse_group(name) for name in names}
    shards = sorted((number, name) for name, number in numbers.items() if number is not None)
    found = [_group(fs, layout.FLAT_GROUP, wal_dir)]
    found += [_group(fs, name, f"{wal_dir}/{name}") for _, name in shards]
    return [group for group in found if group.first_lfns or group.current or group.warnings]


def _group(fs: Fs, key: str, directory: str) -> Group:
    names = reading(directory, lambda: fs.listdir(directory))
    lfns = (layout.parse_wal(name) for name in names)
    group = Group(key, directory, sorted(lfn for lfn in lfns if lfn is not None))
    path = f"{directory}/{layout.CURRENT}"
    if layout.CURRENT in names:
        text = reading(path, lambda: read_file(fs, path))
        group.current = identity.decode_current(text)
        if group.current is None:
            group.warnings.append(f"{path} is unreadable and will be rebuilt")
    elif group.first_lfns:
        group.warnings.append(f"{path} is missing and will be rebuilt")
    return group


def read_header(fs: Fs, group: Group, first_lfn: int, *, store_id: bytes) -> LogFile:
    """The header of a file, checked against its name, its directory and the store."""
    path = group.path(first_lfn)
    file = reading(path, lambda: fs.open(path))
    try:
        size = reading(path, file.size)
        data = reading(path, lambda: read_exact(file, min(size, HEADER_SIZE), 0))
    finally:
        file.close()
    header = _decode_header(data, path)
    if header.format != identity.WAL_VERSION:
        message = f"log format {header.format} is not known here; use the version that wrote it"
        raise refusal("format", message, path, 0)
    if header.store_id != store_id:
        raise refusal("foreign_frame", "belongs to another store; restore this one's own", path, 0)
    key = layout.group_key(header.shard, header.shards)
    if header.first_lfn != first_lfn or key != group.key:
        message = f"is frame {header.first_lfn} of shard {header.shard} by its header"
        raise refusal("wal_missing", message + "; files were exchanged, restore them", path, 0)
    return LogFile(path, size, header)


def _decode_header(data: bytes, path: str) -> FileHeader:
    frame = decode_at(data, 0, len(data))
    if not isinstance(frame, Frame):
        raise refusal("wal_corrupt", "its header is damaged; restore the file", path, 0)
    try:
        fact = frame.fact(data)
    except ForeignFrame as error:
        message = f"{error}; it is intact but not understood, use the version that wrote it"
        raise refusal("foreign_frame", message, path, 0) from error
    if not isinstance(fact, FileHeader):
        message = "does not begin with a file header; restore the file"
        raise refusal("foreign_frame", message, path, 0)
    return fact


def files_from(
    fs: Fs, group: Group, start: Position | None, *, store_id: bytes
) -> Sequence[LogFile]:
    """The files that hold everything after `start`, oldest first, their chain checked.

    Without a start the chain has to begin at its beginning. Files wholly before the start are not
    looked at. An empty answer means that the group was absorbed and its files removed.
    """
    named = group.current
    if named is not None and named.first_lfn not in group.first_lfns:
        raise _missing(group, named.first_lfn)
    wanted = [lfn for lfn in group.first_lfns if start is None or lfn >= start.file_lfn]
    found = [read_header(fs, group, lfn, store_id=store_id) for lfn in wanted]
    if found:
        _check_start(found[0], start)
    elif start is not None and named is not None:
        raise _missing(group, start.file_lfn)
    for before, after in pairwise(found):
        _check_link(before, after)
    _check_generation(group, found)
    return found


def _missing(group: Group, first_lfn: int) -> RefusedToOpen:
    return refusal("wal_missing", "this log file is gone; restore it", group.path(first_lfn))


def _gap_before(after: LogFile, first_lfn: int) -> RefusedToOpen:
    name = layout.wal_name(first_lfn)
    return refusal("wal_missing", f"the file before it, {name}, is gone; restore it", after.path)


def _check_start(first: LogFile, start: Position | None) -> None:
    header = first.header
    if start is None:
        if header.prev_first_lfn:
            before = layout.wal_name(header.prev_first_lfn)
            message = f"the file before it, {before}, is gone, and no snapshot replaces it; "
            raise refusal("wal_missing", message + f"restore it, or {layout.META}", first.path)
    elif header.first_lfn == start.file_lfn:
        if first.size < start.offset:
            message = f"has {first.size} bytes, but {start.offset} were durable; restore the file"
            raise refusal("wal_short", message, first.path, first.size)
    else:
        follows = (header.prev_first_lfn, header.prev_len) == (start.file_lfn, start.offset)
        if header.first_lfn != start.lfn + 1 or not (follows or not header.prev_first_lfn):
            raise _gap_before(first, start.file_lfn)


def _check_link(before: LogFile, after: LogFile) -> None:
    header = after.header
    if header.prev_first_lfn != before.header.first_lfn:
        raise _gap_before(after, header.prev_first_lfn)
    if header.prev_len != before.size:
        message = f"has {before.size} bytes instead of {header.prev_len}; restore the file"
        raise refusal("wal_missing", message, before.path, min(before.size, header.prev_len))
    if header.generation < before.header.generation:
        raise refusal("wal_missing", "is older than the file before it; restore it", after.path, 0)


def _check_generation(group: Group, found: Sequence[LogFile]) -> None:
    """CURRENT is written after the file it names, so that file cannot be of an older run."""
    named = group.current
    for log_file in found:
        header = log_file.header
        if (
            named is not None
            and header.first_lfn == named.first_lfn
            and header.generation < named.generation
        ):
            message = "an older copy has taken its place; restore the newer one"
            raise refusal("wal_missing", message, log_file.path, 0)

"""Making log files: allocate, name, and point CURRENT at them.

A new file is prepared as `wal-spare.tmp`, gets its header and a sync, and only then its name, so a
log file that can be seen always has a whole header. Files are never reused: each is a new inode
full of zeros, which is what makes "zeros to the end" mean "nothing was written here".
"""

import errno
import struct
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from topics.core.facts import Beacon, FileHeader
from topics.storage import identity, layout
from topics.storage.checksum import h64
from topics.storage.crashpoints import crashpoint
from topics.storage.frames import buffer as frames
from topics.storage.fs import File, Fs, replace_file, write_all
from topics.storage.wal.settings import MIB

_BEACON_END = struct.Struct("<QQ")  # file_lfn and offset close a beacon's payload
_CHECKSUM = struct.Struct("<Q")
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
LEAST_ROOM: Final = MIB
"""Without so many bytes for a new file, a disk is full."""
KEPT_ROOM: Final = MIB // 16
"""Bytes at the end of what a file has allocated that only relief may use."""
_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP})


class Writer(msgspec.Struct, frozen=True):
    """Who writes a group: what every header of its files repeats."""

    store_id: bytes
    boot_id: bytes
    generation: int
    shard: int
    shards: int

    @property
    def store_mark(self) -> int:
        """What a beacon carries so that no text a client stores can pass for one."""
        return identity.store_mark(self.store_id)


class Link(NamedTuple):
    """How a file hangs on its predecessor; both `prev_` are 0 where a chain begins."""

    first_lfn: int
    prev_first_lfn: int
    prev_len: int


def header_frame(writer: Writer, link: Link) -> bytes:
    """The first bytes of a log file."""
    return frames.encode(
        FileHeader(
            ts=0,
            format=identity.WAL_VERSION,
            shard=writer.shard,
            shards=writer.shards,
            generation=writer.generation,
            first_lfn=link.first_lfn,
            prev_first_lfn=link.prev_first_lfn,
            prev_len=link.prev_len,
            store_id=writer.store_id,
            boot_id=writer.boot_id,
        )
    )


class Beacons:
    """Makes the beacons of one store.

    One is written with every lone durable write, so all but its two numbers is encoded once.
    """

    __slots__ = ("_start",)

    def __init__(self, store_mark: int) -> None:
        whole = frames.encode(Beacon(ts=0, store_mark=store_mark, file_lfn=0, offset=0))
        self._start = whole[: -_BEACON_END.size - _CHECKSUM.size]

    def frame(self, file_lfn: int, offset: int) -> bytes:
        """Proof for readers that everything before this place is durable."""
        unsigned = self._start + _BEACON_END.pack(file_lfn, offset)
        return unsigned + _CHECKSUM.pack(h64(unsigned[4:]))


HEADER_SIZE: Final = len(header_frame(Writer(bytes(16), bytes(16), 0, 0, 1), Link(1, 0, 0)))
BEACON_SIZE: Final = len(Beacons(0).frame(0, 0))
assert (HEADER_SIZE, BEACON_SIZE) == (118, 63)


def is_no_space(error: OSError) -> bool:
    """Whether the disk or the quota is full: the one write error that heals."""
    return error.errno in _NO_SPACE


def whole_mib(size: int) -> int:
    """`size` rounded up."""
    return -(-size // MIB) * MIB


def allocate(file: File, size: int) -> None:
    """Reserve the first `size` bytes, or at least set the size where that is not supported."""
    try:
        file.fallocate(size)
    except OSError as error:
        if error.errno not in _NO_ALLOCATION:
            raise
        file.truncate(size)


def make_spare(fs: Fs, directory: str, size: int) -> File:
    """A fresh file of `size` zeros under the spare's name; nothing is left behind on an error."""
    path = f"{directory}/{layout.WAL_SPARE}"
    try:
        file = fs.open(path, write=True, exclusive=True)
    except FileExistsError:
        fs.unlink(path)
        file = fs.open(path, write=True, exclusive=True)
    try:
        allocate(file, size)
    except OSError:
        file.close()
        remove_spare(fs, directory)
        raise
    return file


def remove_spare(fs: Fs, directory: str) -> None:
    """Best effort: a spare that stays is removed by the next start."""
    with suppress(OSError):
        fs.unlink(f"{directory}/{layout.WAL_SPARE}")


def head_spare(spare: File, writer: Writer, link: Link) -> bytes:
    """Write and sync the header; returns its bytes."""
    header = header_frame(writer, link)
    write_all(spare, header, 0)
    spare.fsync()
    crashpoint("wal.rotate.header")
    return header


def name_spare(fs: Fs, directory: str, first_lfn: int) -> None:
    """Give the spare, header and all, its name among the log files; durable on return.

    A file of that name is replaced: that is how a file without frames makes way for a new one.
    """
    fs.rename(f"{directory}/{layout.WAL_SPARE}", f"{directory}/{layout.wal_name(first_lfn)}")
    crashpoint("wal.rotate.renamed")
    fs.sync_dir(directory)
    crashpoint("wal.rotate.dirsynced")


def point_current(fs: Fs, directory: str, first_lfn: int, generation: int) -> None:
    """Make CURRENT name this file, durably."""
    text = identity.encode_current(first_lfn, generation)
    replace_file(fs, f"{directory}/{layout.CURRENT}", text)
    crashpoint("wal.rotate.current")

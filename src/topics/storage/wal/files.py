"""What log files consist of beside records: their headers, beacons and allocated room."""

import errno
import struct
from typing import Final, NamedTuple

import msgspec

from topics.core.facts import Beacon, FileHeader
from topics.storage import identity
from topics.storage.checksum import h64
from topics.storage.frames import buffer as frames
from topics.storage.fs import File
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
    return -(-size // MIB) * MIB


def allocate(file: File, size: int) -> None:
    """Reserve the first `size` bytes, or at least set the size where that is not supported."""
    try:
        file.fallocate(size)
    except OSError as error:
        if error.errno not in _NO_ALLOCATION:
            raise
        file.truncate(size)

"""What a backup consists of: immutable objects, and one root that names those that count.

    topics-backup.json            the root, replaced by compare-and-swap
    objects/<session>/<number>    everything else; a name is never used twice

The root and the list of segments are a line of JSON, a line feed, the SHA-256 of the line in 64 hex
digits and a line feed; the list is compressed with zlib. Other objects are raw bytes of the store,
and whoever names one names its size and its XXH3-128, too.

A *point* is a snapshot of the store: the files of its chain, and log positions. The segments that
it lists are in the list of segments, with all delete bytes zero: a delete byte is the only part of
a segment that changes, and a restore takes deletes from the snapshot and the log, which know when.
Behind every point follows the log, as far as it has been copied. So a restore goes to a point and
from there on through the log, to any moment of a *span*; between two spans the log has a hole.

A session is one run of a backup. Its objects are put first and named by the root last: a run that
is killed leaves objects that nobody names. A prune removes them.
"""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import Final, TypeVar

import msgspec
import xxhash

from topics.errors import TopicsError
from topics.storage.snapshots.lines import GroupPosition

ROOT: Final = "topics-backup.json"
OBJECTS: Final = "objects"
FORMAT_VERSION: Final = 1

T = TypeVar("T")


class BadBackup(TopicsError):
    """An object of a backup is damaged, missing, or of a version that this program cannot read."""

    code = "backup_damaged"


class _BackupPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the root or of the list of segments."""


class Ref(_BackupPart, frozen=True, gc=False, array_like=True):
    """An object that holds exactly these bytes."""

    name: str
    size: int
    hash: str  # XXH3-128, 32 hex digits


class SegmentPiece(_BackupPart, frozen=True, gc=False, array_like=True):
    """A part of a segment: bytes of `.data`, then as many entries of `.idx` as belong to them."""

    ref: Ref
    data_len: int
    idx_len: int


class SegmentCopy(_BackupPart, frozen=True):
    """A segment as far as it was copied. Points from `since` on, and before `until`, use it."""

    topic_id: int
    first: int
    since: int
    until: int | None
    data_len: int
    idx_len: int
    idx_hash: str  # H64 of the entries with every delete byte zero, 16 hex digits
    pieces: tuple[SegmentPiece, ...]


class LogCopy(_BackupPart, frozen=True):
    """A log file as far as it has been copied: whole submissions from its beginning on."""

    group: str
    first_lfn: int
    generation: int
    prev_first_lfn: int
    prev_len: int
    size: int
    chunks: tuple[Ref, ...]  # may have bytes behind `size`, which the log lost in a power cut


class SnapshotCopy(_BackupPart, frozen=True, array_like=True):
    """A file of a snapshot's chain."""

    number: int
    ref: Ref


class Point(_BackupPart, frozen=True, kw_only=True):
    """A place to restore from. Number 0 is the beginning of the log, without a snapshot."""

    number: int
    ts: int  # of the snapshot: everything in it had happened by then
    positions: tuple[GroupPosition, ...]
    chain: tuple[SnapshotCopy, ...]
    dead: Ref | None = None  # deletes that only delete bytes tell: JSON, see `DeadRuns`
    records: int = 0
    bytes: int = 0  # of the segments that it lists


class DeadRuns(_BackupPart, frozen=True):
    """The deleted seqs of a topic below its `exact_from`."""

    topic_id: int
    runs: list[tuple[int, int]]


class Span(_BackupPart, frozen=True, array_like=True):
    """Every moment from one time to another can be restored; none yet if the end is earlier."""

    from_ms: int
    to_ms: int


class ReceiptCopy(_BackupPart, frozen=True, array_like=True):
    """A receipt of the ledger of erasures."""

    number: int
    ref: Ref


class BackupWriter(_BackupPart, frozen=True):
    """The session that last claimed the destination."""

    session: str
    host: str
    pid: int
    since_ms: int
    seen_ms: int
    is_done: bool


class Root(_BackupPart, frozen=True, kw_only=True):
    """What counts in a destination."""

    format: int
    store_id: str  # 32 hex digits
    lineage: str  # of a restored store: which restore it comes from
    format_file: str  # contents of FORMAT
    version: int  # one higher with every swap
    writer: BackupWriter
    points: tuple[Point, ...] = ()
    log: tuple[LogCopy, ...] = ()
    spans: tuple[Span, ...] = ()  # the last one may still grow
    is_open: bool = False  # whether the copied log reaches without a hole from the last point on
    segments: Ref | None = None
    erasures: tuple[ReceiptCopy, ...] = ()


def ref_of(name: str, data: bytes | bytearray | memoryview) -> Ref:
    """How an object with these bytes is named."""
    return Ref(name, len(data), xxhash.xxh3_128_hexdigest(data))


def checked(ref: Ref, data: bytes) -> bytes:
    """The bytes of an object, if they are the ones that were put."""
    if ref_of(ref.name, data) != ref:
        raise BadBackup(f"{ref.name} is not as it was written")
    return data


def encode_root(root: Root) -> bytes:
    return _signed(root)


def decode_root(data: bytes) -> Root:
    """The root; `BadBackup` if it is damaged or of a newer version."""
    return _decoded(data, Root, ROOT)


def encode_segments(segments: list[SegmentCopy]) -> bytes:
    return zlib.compress(_signed(segments), 6)


def decode_segments(data: bytes) -> list[SegmentCopy]:
    try:
        plain = zlib.decompress(data)
    except zlib.error as error:
        raise BadBackup(f"the list of segments is damaged: {error}") from error
    return _decoded(plain, list[SegmentCopy], "the list of segments")


def _signed(value: object) -> bytes:
    line = msgspec.json.encode(value)
    return b"%b\n%b\n" % (line, sha256(line).hexdigest().encode())


def _decoded(data: bytes, kind: type[T], name: str) -> T:
    line, _, digest = data.partition(b"\n")
    if digest != sha256(line).hexdigest().encode() + b"\n":
        raise BadBackup(f"{name} is damaged: its checksum does not match")
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBackup(f"{name} cannot be read: {error}; use the version that wrote it") from error

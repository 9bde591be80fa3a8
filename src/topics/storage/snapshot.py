"""The snapshot file, version 4: a checksummed header and a body of JSON lines.

Integers are little-endian.

    offset  size  field
         0     4  magic     "SNP1"
         4     4  version   4
         8     8  body_len
        16     8  H64 of bytes 0 .. 15 and the body
        24        body: UTF-8, one JSON object per line (see `snapshot_lines`)

The header is written last. A file that was not finished has none and is invalid, like one with a
wrong length, checksum, line, count or store: as a whole, never in part.

The checksum begins with the length, which nobody knows before the last line. A body larger than the
write buffer is therefore read back to be summed, and must be what was written.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Generator, Iterable, Iterator
from typing import Final

import msgspec
from xxhash import xxh3_64

from topics.storage.checksum import h64
from topics.storage.fs import File, Fs, read_exact, write_all
from topics.storage.identity import SNAPSHOT_VERSION
from topics.storage.snapshot_lines import (
    AppLine,
    BodyLine,
    EndLine,
    HeadLine,
    Line,
    RouterLine,
    TopicLine,
    decode_line,
    encode_line,
)

BUFFER_BYTES: Final = 4 << 20
STEP_LINES: Final = 64
STEP_BYTES: Final = 64 << 10
MAGIC: Final = b"SNP1"

_HEAD = struct.Struct("<4sIQ")
_U64 = struct.Struct("<Q")
BODY_START: Final = 24

assert _HEAD.size + _U64.size == BODY_START


class BadSnapshot(ValueError):
    """The file is no valid snapshot of this store; another one has to serve."""


class Snapshot(msgspec.Struct, frozen=True):
    """A whole snapshot, checked."""

    head: HeadLine
    topics: list[TopicLine]
    routers: list[RouterLine]
    apps: list[AppLine]


class SnapshotWriter:
    """Writes a snapshot into an empty file, line by line; syncing and naming it is up to others."""

    def __init__(self, file: File, head: HeadLine) -> None:
        self._file = file
        self._buffer = bytearray()
        self._flushed = 0  # body bytes in the file
        self._sum = xxh3_64()  # of those
        self._counts: dict[type[BodyLine], int] = {TopicLine: 0, RouterLine: 0, AppLine: 0}
        self._put(head)

    def add(self, lines: Iterable[BodyLine]) -> Generator[None, None, None]:
        """Append lines. Yields behind some short ones, or behind a long one.

        Between two of them at most about one buffer is written.
        """
        count, before = 0, self._size
        for line in lines:
            self._counts[type(line)] += 1
            self._put(line)
            count += 1
            if count == STEP_LINES or self._size - before >= STEP_BYTES:
                yield
                count, before = 0, self._size

    @property
    def _size(self) -> int:
        return self._flushed + len(self._buffer)

    def finish(self) -> Generator[None, None, int]:
        """Write the last line and the header; returns the size of the file.

        Yields between buffers, as a large body is read back.
        """
        counts = self._counts
        self._put(
            EndLine(topics=counts[TopicLine], routers=counts[RouterLine], apps=counts[AppLine])
        )
        head = _HEAD.pack(MAGIC, SNAPSHOT_VERSION, self._flushed + len(self._buffer))
        if not self._flushed:
            checksum = h64(head + self._buffer)
            self._flush()
        else:
            self._flush()
            checksum = yield from self._sum_from_file(head)
        write_all(self._file, head + _U64.pack(checksum), 0)
        return BODY_START + self._flushed

    def _put(self, line: Line) -> None:
        encoded = encode_line(line)
        if self._buffer and len(self._buffer) + len(encoded) >= BUFFER_BYTES:
            self._flush()
        self._buffer += encoded
        self._buffer += b"\n"
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        for start in range(0, len(self._buffer), BUFFER_BYTES):
            piece = self._buffer[start : start + BUFFER_BYTES]
            write_all(self._file, piece, BODY_START + self._flushed)
            self._sum.update(piece)
            self._flushed += len(piece)
        self._buffer.clear()

    def _sum_from_file(self, head: bytes) -> Generator[None, None, int]:
        whole, body = xxh3_64(head), xxh3_64()
        for piece in _pieces(self._file, self._flushed):
            whole.update(piece)
            body.update(piece)
            yield
        if body.intdigest() != self._sum.intdigest():
            raise OSError(errno.EIO, "the snapshot does not read back as it was written")
        return whole.intdigest()


def read_snapshot(fs: Fs, path: str, store_id: bytes) -> Snapshot:
    """The snapshot in a file; `BadSnapshot` unless all of it is sound and of this store.

    Errors of the disk pass through: they say nothing about the file's contents.
    """
    file = fs.open(path)
    try:
        size = file.size()
        if size < BODY_START:
            raise BadSnapshot("shorter than its header")
        header = read_exact(file, BODY_START, 0)
        lines = _Lines(store_id)
        checksum = xxh3_64(_checked_head(header, size))
        for piece in _pieces(file, size - BODY_START):
            checksum.update(piece)
            lines.feed(piece)
    except EOFError as error:
        raise BadSnapshot("it became shorter while it was read") from error
    finally:
        file.close()
    if checksum.intdigest() != _U64.unpack_from(header, _HEAD.size)[0]:
        raise BadSnapshot("the checksum does not match")
    return lines.finish()


def _checked_head(header: bytes, size: int) -> bytes:
    magic, version, body_len = _HEAD.unpack_from(header)
    if magic != MAGIC:
        raise BadSnapshot("not a snapshot, or one that was never finished")
    if version != SNAPSHOT_VERSION:
        raise BadSnapshot(f"version {version}, this program reads {SNAPSHOT_VERSION}")
    if body_len != size - BODY_START:
        raise BadSnapshot(f"{size - BODY_START} bytes of body instead of {body_len}")
    return header[: _HEAD.size]


def _pieces(file: File, body_len: int) -> Iterator[bytes]:
    for start in range(0, body_len, BUFFER_BYTES):
        yield read_exact(file, min(BUFFER_BYTES, body_len - start), BODY_START + start)


class _Lines:
    """Puts pieces of the body together to lines and lines to a snapshot."""

    def __init__(self, store_id: bytes) -> None:
        self._store_id = store_id.hex()
        self._rest: list[bytes] = []  # pieces of a line whose end has not come yet
        self._head: HeadLine | None = None
        self._end: EndLine | None = None
        self._topics: list[TopicLine] = []
        self._routers: list[RouterLine] = []
        self._apps: list[AppLine] = []

    def feed(self, piece: bytes) -> None:
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        for text in others:
            self._take(b"".join(self._rest))
            self._rest = [text]

    def finish(self) -> Snapshot:
        if self._head is None or self._end is None or any(self._rest):
            raise BadSnapshot("the last line is missing")
        found = len(self._topics), len(self._routers), len(self._apps)
        if found != (self._end.topics, self._end.routers, self._end.apps):
            raise BadSnapshot("the last line counts other lines than there are")
        return Snapshot(self._head, self._topics, self._routers, self._apps)

    def _take(self, text: bytes) -> None:
        try:
            line = decode_line(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadSnapshot(f"a line cannot be read: {error}") from error
        if self._end is not None or isinstance(line, HeadLine) != (self._head is None):
            raise BadSnapshot("a line is out of place")
        match line:
            case HeadLine():
                if line.store_id != self._store_id:
                    raise BadSnapshot(f"it belongs to store {line.store_id}")
                self._head = line
            case TopicLine():
                self._topics.append(line)
            case RouterLine():
                self._routers.append(line)
            case AppLine():
                self._apps.append(line)
            case EndLine():  # pragma: no branch - the decoder knows no other line
                self._end = line

"""The snapshot file, version 4 or 5: a checksummed header and a body of JSON lines.

Integers are little-endian.

    offset  size  field
         0     4  magic     "SNP1"
         4     4  version   4: a whole snapshot; 5: a part (see `snapshots.chain`)
         8     8  body_len
        16     8  H64 of bytes 0 .. 15 and the body
        24        body: UTF-8, one JSON object per line (see `lines`)

The header is written last. A file that was not finished has none and is invalid, like one with a
wrong length, checksum, line, count or store: as a whole, never in part.

The checksum begins with the length, which is unknown before the last line. A body larger than the
write buffer is therefore read back for the checksum, and must be equal to what was written.
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
from topics.storage.identity import PARTS_VERSION, SNAPSHOT_VERSION
from topics.storage.snapshots.lines import (
    AppLine,
    BodyLine,
    EndLine,
    GoneLine,
    HeadLine,
    PartLine,
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
_KINDS: Final[dict[type[BodyLine], str]] = {
    TopicLine: "topic",
    RouterLine: "router",
    AppLine: "app",
}

assert _HEAD.size + _U64.size == BODY_START


class BadSnapshot(ValueError):
    """The file is no valid snapshot of this store; another one has to serve."""


class Snapshot(msgspec.Struct, frozen=True):
    """What a file says, checked: a whole snapshot, or a part of one if something may be gone."""

    head: HeadLine
    topics: list[TopicLine]
    routers: list[RouterLine]
    apps: list[AppLine]
    gone: GoneLine | None
    size: int
    checksum: int


class SnapshotWriter:
    """Writes a snapshot into an empty file, line by line; syncing and naming it is up to others.

    A part needs `gone`, which is its second line. `checksum` is that of the finished file.
    """

    def __init__(self, file: File, head: HeadLine, gone: GoneLine | None = None) -> None:
        assert isinstance(head, PartLine) == (gone is not None)
        self._file = file
        self._version = SNAPSHOT_VERSION if gone is None else PARTS_VERSION
        self._buffer = bytearray()
        self._flushed = 0  # body bytes in the file
        self._sum = xxh3_64()  # of those
        self._counts = {"topic": 0, "router": 0, "app": 0}
        self.checksum = 0
        self._put(encode_line(head))
        if gone is not None:
            self._put(encode_line(gone))

    def add(self, lines: Iterable[BodyLine]) -> Generator[None, None, None]:
        """Append lines. Yields behind some short ones, or behind a long one.

        Between two of them at most about one buffer is written.
        """
        return self.copy((_KINDS[type(line)], encode_line(line)) for line in lines)

    def copy(self, lines: Iterable[tuple[str, bytes]]) -> Generator[None, None, None]:
        """Append lines that are encoded already, each with what it is about; yields as `add`."""
        count, before = 0, self._size
        for kind, encoded in lines:
            self._counts[kind] += 1
            self._put(encoded)
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
        end = EndLine(topics=counts["topic"], routers=counts["router"], apps=counts["app"])
        self._put(encode_line(end))
        head = _HEAD.pack(MAGIC, self._version, self._flushed + len(self._buffer))
        if not self._flushed:
            checksum = h64(head + self._buffer)
            self._flush()
        else:
            self._flush()
            checksum = yield from self._sum_from_file(head)
        write_all(self._file, head + _U64.pack(checksum), 0)
        self.checksum = checksum
        return BODY_START + self._flushed

    def _put(self, encoded: bytes) -> None:
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
    """What a file says; `BadSnapshot` unless all of it is sound and of this store.

    Errors of the disk pass through: they say nothing about the file's contents.
    """
    reader = SnapshotReader(fs, path)
    lines = _LineCollector(store_id)
    for text in reader.lines():
        lines.take(text)
    return lines.finish(reader)


class SnapshotReader:
    """Reads a file once, line by line; what it gave is sound when there are no more lines."""

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self.version = self.size = self.checksum = 0

    def lines(self) -> Iterator[bytes]:
        """Every line without its line feed; what follows the last one, if anything, too."""
        file = self._fs.open(self._path)
        try:
            yield from self._read(file)
        except EOFError as error:
            raise BadSnapshot("it became shorter while it was read") from error
        finally:
            file.close()

    def _read(self, file: File) -> Iterator[bytes]:
        self.size = file.size()
        if self.size < BODY_START:
            raise BadSnapshot("shorter than its header")
        header = read_exact(file, BODY_START, 0)
        self.version = _checked_version(header, self.size)
        checksum = xxh3_64(header[: _HEAD.size])
        rest: list[bytes] = []  # pieces of a line whose end has not come yet
        for piece in _pieces(file, self.size - BODY_START):
            checksum.update(piece)
            first, *others = piece.split(b"\n")
            rest.append(first)
            for text in others:
                yield b"".join(rest)
                rest = [text]
        yield b"".join(rest)
        self.checksum = checksum.intdigest()
        if self.checksum != _U64.unpack_from(header, _HEAD.size)[0]:
            raise BadSnapshot("the checksum does not match")


def _checked_version(header: bytes, size: int) -> int:
    magic, version, body_len = _HEAD.unpack_from(header)
    if magic != MAGIC:
        raise BadSnapshot("not a snapshot, or one that was never finished")
    if version not in (SNAPSHOT_VERSION, PARTS_VERSION):
        raise BadSnapshot(f"version {version}, this program reads up to {PARTS_VERSION}")
    if body_len != size - BODY_START:
        raise BadSnapshot(f"{size - BODY_START} bytes of body instead of {body_len}")
    return int(version)


def _pieces(file: File, body_len: int) -> Iterator[bytes]:
    for start in range(0, body_len, BUFFER_BYTES):
        yield read_exact(file, min(BUFFER_BYTES, body_len - start), BODY_START + start)


class _LineCollector:
    """Puts lines together to what they say."""

    def __init__(self, store_id: bytes) -> None:
        self._store_id = store_id.hex()
        self._head: HeadLine | None = None
        self._gone: GoneLine | None = None
        self._end: EndLine | None = None
        self._topics: list[TopicLine] = []
        self._routers: list[RouterLine] = []
        self._apps: list[AppLine] = []
        self._is_over = False

    def finish(self, reader: SnapshotReader) -> Snapshot:
        if self._head is None or not self._is_over:
            raise BadSnapshot("the last line is missing")
        assert self._end is not None
        found = len(self._topics), len(self._routers), len(self._apps)
        if found != (self._end.topics, self._end.routers, self._end.apps):
            raise BadSnapshot("the last line counts other lines than there are")
        is_part = isinstance(self._head, PartLine)
        if is_part != (self._gone is not None) or is_part != (reader.version == PARTS_VERSION):
            raise BadSnapshot("it is neither a whole snapshot nor a part of one")
        return Snapshot(
            self._head,
            self._topics,
            self._routers,
            self._apps,
            self._gone,
            reader.size,
            reader.checksum,
        )

    def take(self, text: bytes) -> None:
        if not text and self._end is not None and not self._is_over:
            self._is_over = True  # the last line ended with a line feed
            return
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
            case GoneLine():
                if self._gone is not None:
                    raise BadSnapshot("a line is out of place")
                self._gone = line
            case TopicLine():
                self._topics.append(line)
            case RouterLine():
                self._routers.append(line)
            case AppLine():
                self._apps.append(line)
            case EndLine():  # pragma: no branch - the decoder knows no other line
                self._end = line

"""Copying the log: whole submissions, file by file, as far as they can be read now.

The owner writes on meanwhile. A submission whose bytes are not all there yet is left for the next
pass. If the owner lost the end of a file in a power cut, the header of the file behind it tells how
long that file is; what was copied beyond that does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from topics.core.facts import FileHeader
from topics.storage import layout
from topics.storage.backup.manifest import LogCopy, Ref
from topics.storage.frames.buffer import CleanEnd, Frame, decode_at, walk
from topics.storage.frames.header import FLAG_CONT, FLAGS_AT, ForeignFrame
from topics.storage.fs import File, Fs, read_exact
from topics.storage.wal.files import HEADER_SIZE
from topics.storage.wal.groups import Group, discover

GLANCE = 256 << 10
WINDOW = 32 << 20
MOST = 1 << 30
"""Bytes read at a time: a little, many, and as many as the longest submission may have."""
MOST_CHUNKS = 16
"""Of one file; more are joined."""

Put = Callable[[bytes], Ref]
Get = Callable[[Ref], bytes]


class Copied(msgspec.Struct):
    """What a pass over the log came to."""

    files: list[LogCopy]
    is_whole: bool  # without a hole, in every group
    bytes: int = 0


class LogCopier:
    """Copies the log of one data directory. `files` are those that have been copied so far."""

    def __init__(self, fs: Fs, data_dir: str, put: Put, get: Get) -> None:
        self._fs = fs
        self._wal = f"{data_dir}/{layout.WAL}"
        self._put = put
        self._get = get

    def copy(self, files: list[LogCopy], *, starts: dict[str, int] | None) -> Copied:
        """Go on behind `files`. Without any of a group, begin with the file in `starts`.

        Raises `FileNotFoundError` if a file is removed before its end was read: nobody can say
        then whether something is missing.
        """
        result = Copied(list(files), is_whole=True)
        for group in discover(self._fs, self._wal):
            self._copy_group(group, result, None if starts is None else starts.get(group.key, 0))
        return result

    def _copy_group(self, group: Group, result: Copied, start: int | None) -> None:
        known = [each for each in result.files if each.group == group.key]
        last = known[-1] if known else None
        begin = last.first_lfn if last is not None else (start or 0)
        wanted = [lfn for lfn in group.first_lfns if lfn >= begin]
        for first_lfn in wanted:
            header = self._header(group, first_lfn)
            if header is None:
                continue  # it is being made
            last = self._follow(last, header, group, result)
            copied = self._copy_file(group, last)
            result.bytes += copied.size - last.size
            result.files[_place(result.files, last)] = copied
            last = copied

    def _follow(
        self, last: LogCopy | None, header: FileHeader, group: Group, result: Copied
    ) -> LogCopy:
        """The copy of this file so far; notes how long the file before it is."""
        if last is not None and last.first_lfn == header.first_lfn:
            if last.generation == header.generation:
                return last
            result.files.remove(last)  # it had only a header, and was replaced
            before = [each for each in result.files if each.group == group.key]
            last = before[-1] if before else None
        if last is not None and not self._is_link(last, header):
            result.is_whole = False
        elif last is not None and header.prev_first_lfn and last.size != header.prev_len:
            shorter = msgspec.structs.replace(last, size=header.prev_len)
            result.files[_place(result.files, last)] = shorter
        fresh = LogCopy(
            group.key,
            header.first_lfn,
            header.generation,
            header.prev_first_lfn,
            header.prev_len,
            0,
            (),
        )
        result.files.append(fresh)
        return fresh

    def _is_link(self, last: LogCopy, header: FileHeader) -> bool:
        """Whether nothing is missing between two files."""
        return header.prev_first_lfn == last.first_lfn and last.size >= header.prev_len

    def _copy_file(self, group: Group, copied: LogCopy) -> LogCopy:
        file = self._fs.open(group.path(copied.first_lfn))
        try:
            while data := _submissions(file, copied.size):
                copied = msgspec.structs.replace(
                    copied, size=copied.size + len(data), chunks=(*copied.chunks, self._put(data))
                )
        finally:
            file.close()
        return copied

    def _header(self, group: Group, first_lfn: int) -> FileHeader | None:
        with suppress(EOFError, ForeignFrame):
            file = self._fs.open(group.path(first_lfn))
            try:
                data = read_exact(file, HEADER_SIZE, 0)
            finally:
                file.close()
            frame = decode_at(data, 0, len(data))
            fact = frame.fact(data) if isinstance(frame, Frame) else None
            return fact if isinstance(fact, FileHeader) else None
        return None

    def joined(self, copied: LogCopy) -> LogCopy:
        """The same with few objects, if it has many."""
        if len(copied.chunks) <= MOST_CHUNKS:
            return copied
        chunks: list[Ref] = []
        parts: list[bytes] = []
        size = 0
        for ref in copied.chunks:
            if size and size + ref.size > WINDOW:
                chunks.append(self._put(b"".join(parts)))
                parts, size = [], 0
            parts.append(self._get(ref))
            size += ref.size
        chunks.append(self._put(b"".join(parts)))
        return msgspec.structs.replace(copied, chunks=tuple(chunks))


def _place(files: list[LogCopy], copied: LogCopy) -> int:
    for place, each in enumerate(files):
        if (each.group, each.first_lfn) == (copied.group, copied.first_lfn):
            return place
    raise AssertionError(f"{copied} is not among the files")


def _submissions(file: File, offset: int) -> bytes:
    """Whole submissions from an offset on; empty if there is none yet.

    A little is read first: behind the log's end a file has only zeros, and many of them.
    """
    for window in (GLANCE, WINDOW, MOST):
        left = max(0, file.size() - offset)
        buf = file.pread(min(window, left), offset)
        end, is_all = whole_end(buf)
        if is_all or len(buf) < window or (end and window > GLANCE):
            return buf[:end]
    return b""


def whole_end(buf: bytes) -> tuple[int, bool]:
    """Where the last whole submission of a buffer ends that begins with one, and whether only
    zeros follow."""
    end = position = 0
    while True:
        walked = walk(buf, position, len(buf))
        ends = [*walked.offsets[1:], walked.stop] if walked.offsets else []
        for at, behind in zip(walked.offsets, ends, strict=True):
            if not buf[at + FLAGS_AT] & FLAG_CONT:
                end = behind
        position = walked.stop
        if walked.end is not None:
            return end, isinstance(walked.end, CleanEnd) and position < len(buf)

"""Writing a sealed segment anew without its dead records: what makes a delete physical.

The new files have a name of their own (the version is one higher), so that the old ones serve until
no snapshot on disk names them any more. The seqs stay: a dead record becomes a hole of the index,
as if it had been deleted before it ever came to a segment.

    copy     live frames, unchanged, to new files; entries for all seqs; the tags of what is left
    sync     `.data`, `.idx`, the names
    verify   read everything again: every live frame is intact, and nothing else is there

The caller makes the new segment part of a durable snapshot. Until then its files belong to nobody:
a crash leaves them to be removed by the next start, an error leaves them to the next attempt.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from topics.storage.crashpoints import crashpoint
from topics.storage.fs import parent_of, read_file, write_all
from topics.storage.segments import codec
from topics.storage.segments.codec import Idx
from topics.storage.segments.intact import intact_frames
from topics.storage.segments.repair import put_aside
from topics.storage.segments.segment import Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.writer import sync_dirs, write_tags

RECORDS_PER_STEP = 512
STEP_BYTES = 1 << 20


class Rewrite(NamedTuple):
    """A segment that stands on disk in a new version and is not in use yet."""

    segment: Segment
    idx: Idx
    records: int  # left out
    saved: int  # bytes


class _NewEntries:
    """The index entries of the new segment, while it is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.data_len = 0
        self.ts = 0

    def add(self, frames: Sequence[bytes], entries: Sequence[codec.Entry]) -> bytes:
        """Note records; returns their bytes in `.data`."""
        data = codec.pack_records(frames)
        part = codec.build_idx(
            data_offset=self.data_len,
            lengths=[len(frame) for frame in frames],
            times=[entry[2] for entry in entries],
            name_lengths=[entry[5] for entry in entries],
            flags=[entry[3] for entry in entries],
            previous_ts=self.ts,
        )
        self.parts.append(part)
        self.data_len += len(data)
        self.ts = Idx(part[-codec.ENTRY_SIZE :]).ts(0)
        return data


def has_dead_bytes(idx: Idx, first: int, live: Sequence[tuple[int, int]]) -> bool:
    """Whether the segment still holds bytes of a record that is not live."""
    return next(_dead_bytes(idx, first, live), None) is not None


def _dead_bytes(
    idx: Idx, first: int, live: Sequence[tuple[int, int]]
) -> Generator[tuple[int, int], None, None]:
    """Positions of records that have bytes and are not live, and their lengths."""
    bounds = [(first - 1, first - 1), *live, (first + idx.count, first + idx.count)]
    for (_, before), (after, _) in pairwise(bounds):
        for i in range(before + 1 - first, after - first):
            length = idx.length(i)
            if length:
                yield i, length


def rewrite_segment(
    store: SegmentStore, topic_id: int, seg: Segment, live: Sequence[tuple[int, int]]
) -> Generator[None, None, Rewrite]:
    """Write a segment anew with its live records only: `live` are their runs, of which there is
    one at least. Yields after each step; errors of the disk pass through."""
    idx = store.idx(topic_id, seg)
    dead = dict(_dead_bytes(idx, seg.first, live))
    columns = _NewEntries()
    new = seg.rewritten(data_len=0, idx_h=0)
    try:
        yield from _write(store, topic_id, seg, (idx, dead, columns), new)
        new_idx = Idx(b"".join(columns.parts))
        new = seg.rewritten(data_len=columns.data_len, idx_h=codec.idx_hash(new_idx))
        yield from _verify(store, topic_id, new, new_idx)
    except BaseException:
        remove_files(store, topic_id, new)
        raise
    yield from write_tags(store, topic_id, new, new_idx)
    saved = seg.data_len - new.data_len
    return Rewrite(new, new_idx, len(dead), saved)


def remove_files(store: SegmentStore, topic_id: int, seg: Segment) -> None:
    """Take back a version that nothing names; what cannot be removed is written over later."""
    store.forget(topic_id, seg.label)
    files = store.files(topic_id, seg.label, seg.tier)
    for path in files.data, files.idx, files.tag:
        with suppress(OSError):
            store.fs.unlink(path)


def _write(
    store: SegmentStore,
    topic_id: int,
    seg: Segment,
    content: tuple[Idx, dict[int, int], _NewEntries],
    new: Segment,
) -> Generator[None, None, None]:
    idx, dead, columns = content
    files = store.files(topic_id, new.label, seg.tier)
    remove_files(store, topic_id, new)
    store.unsynced_dirs.update((files.directory, parent_of(files.directory)))
    file = store.handles.retrying(lambda: store.fs.open(files.data, write=True, exclusive=True))
    try:
        for i, j in _steps(idx):
            frames = store.frames_at(topic_id, seg, idx, i, j)
            entries = list(idx.entries(i, j))
            kept = [
                b"" if at in dead else _sound(store, topic_id, seg, at, frame)
                for at, frame in zip(range(i, j), frames, strict=True)
            ]
            at = columns.data_len
            write_all(file, columns.add(kept, entries), at)
            crashpoint("erase.data")
            yield
        file.fdatasync()
    finally:
        file.close()
    yield
    file = store.fs.open(files.idx, write=True, exclusive=True)
    try:
        write_all(file, b"".join(columns.parts), 0)
        crashpoint("erase.idx")
        file.fdatasync()
    finally:
        file.close()
    yield
    yield from sync_dirs(store)
    crashpoint("erase.synced")


def _steps(idx: Idx) -> Generator[tuple[int, int], None, None]:
    """Ranges of positions, so many records or bytes at a time."""
    i = 0
    while i < idx.count:
        j = min(i + RECORDS_PER_STEP, idx.count)
        while j > i + 1 and idx.offset(j - 1) + idx.length(j - 1) - idx.offset(i) > STEP_BYTES:
            j = (i + j) // 2
        yield i, j
        i = j


def _sound(store: SegmentStore, topic_id: int, seg: Segment, at: int, frame: bytes | None) -> bytes:
    """A frame to be copied; zeros for one that is rotten, so that its loss is told as before."""
    if frame is not None:
        return frame
    entry = store.idx(topic_id, seg).entry(at)
    rotten = store.read(topic_id, seg, entry[0], entry[1])
    put_aside(store, topic_id, seg.first + at, rotten, ts=entry[2])
    return bytes(entry[1])


def _verify(
    store: SegmentStore, topic_id: int, new: Segment, idx: Idx
) -> Generator[None, None, None]:
    """Read the new files and hold them against what was to be written."""
    files = store.files(topic_id, new.label, new.tier)
    stored = read_file(store.fs, files.idx)
    if stored != bytes(idx.raw) or store.fs.size(files.data) != new.data_len:
        raise OSError(errno.EIO, "a segment written anew is not what was written", files.data)
    yield
    file = store.fs.open(files.data)
    try:
        for i, j in _steps(idx):
            base = idx.offset(i)
            buf = file.pread(idx.offset(j - 1) + idx.length(j - 1) - base, base)
            entries = list(idx.entries(i, j))
            frames = intact_frames(buf, entries, base=base, topic_id=topic_id, first=new.first + i)
            for entry, frame in zip(entries, frames, strict=True):
                start = entry[0] - base
                if frame is None and any(buf[start : start + entry[1]]):
                    raise OSError(errno.EIO, "a record was not copied intact", files.data)
            yield
    finally:
        file.close()

"""The checkpoint's side of segments: captured records go to disk, full segments are sealed.

Frames are copied verbatim, so the checksum made when a record came in still guards it here. Per
piece the bytes go to `.data` first and the entries to `.idx` after, and both are synced in that
order, but nothing rests on it: a file counts only up to the lengths that the metadata records,
and those are recorded after the syncs. A checkpoint may therefore be given up at any point and
simply done again.

A sync that failed is another matter. The kernel may have dropped the pages and will not say so
twice, so the file must not be relied on beyond what an earlier sync covered. The segment joins
`SegmentStore.distrusted`; the next attempt seals it as it was recorded and writes the rest to a
new file.

Sealing changes no bytes. A segment is synced at its seal, so one writer has at most two files
open, however long the backlog is.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress

import msgspec

from topics.storage.crashpoints import crashpoint
from topics.storage.fs import Buffer, File, parent_of, write_all
from topics.storage.segments import codec, tagfile
from topics.storage.segments.codec import Idx
from topics.storage.segments.repair import repair_idx
from topics.storage.segments.segment import ActiveSegment, AnySegment, Segment, SegmentSettings
from topics.storage.segments.store import SegmentStore


class Slice(msgspec.Struct):
    """Records with consecutive seqs, as parallel columns; an empty frame is a dead seq."""

    first_seq: int
    frames: Sequence[Buffer]
    times: Sequence[int]
    name_lengths: Sequence[int]
    flags: Sequence[int]


class SegmentSyncFailed(OSError):
    """A segment file could not be made durable; the checkpoint must be given up."""

    def __init__(self, topic_id: int, first: int, error: OSError) -> None:
        super().__init__(error.errno, f"segment {first} of topic {topic_id}: {error.strerror}")
        self.topic_id = topic_id
        self.first = first


class Written(msgspec.Struct):
    """What `append_records` left to be synced and then published.

    The files of `active` are open if they were written to: pass this to `sync_written`, or
    `close` it.
    """

    topic_id: int
    sealed: list[Segment]
    active: ActiveSegment | None
    pair: _Pair | None
    indexes: list[tuple[AnySegment, Idx]]
    """Of the segments that are new or have grown."""

    def close(self) -> None:
        """Give the result up; its bytes past the recorded lengths do not exist."""
        if self.pair is not None:
            self.pair.close()
            self.pair = None


def append_records(
    store: SegmentStore,
    topic_id: int,
    active: ActiveSegment | None,
    slices: Iterable[Slice],
    *,
    settings: SegmentSettings,
    now_ms: int,
) -> Generator[None, None, Written]:
    """Append slices of ascending seqs behind `active`, sealing what is full, old or interrupted.

    Yields after every slice. Dead seqs become holes inside a segment but never begin one, so a
    long dead range costs no more than one segment of index entries. Any exception leaves the
    recorded state untouched.
    """
    appender = _Appender(store, topic_id, active, settings=settings, now_ms=now_ms)
    try:
        yield from appender.begin()
        for piece in slices:
            yield from appender.take(piece)
            yield
    except BaseException:
        appender.close()
        raise
    return appender.result()


def sync_written(store: SegmentStore, results: Sequence[Written]) -> Generator[None, None, None]:
    """Make the results durable, every `.data` before any `.idx`, then the names.

    Yields after every sync. On an error all files are closed and the checkpoint is to be given
    up; `SegmentSyncFailed` names the segment.
    """
    try:
        pairs = [result.pair for result in results if result.pair is not None]
        for pair in pairs:
            pair.sync_data()
            yield
        for pair in pairs:
            pair.sync_idx()
            yield
        yield from sync_dirs(store)
    finally:
        for result in results:
            result.close()
    crashpoint("ckpt.synced")


def sync_dirs(store: SegmentStore) -> Generator[None, None, None]:
    """Make new names durable, parents first; what fails stays noted for the next time."""
    while store.unsynced_dirs:  # looked at afresh: a drop between two steps changes a name
        path = min(store.unsynced_dirs)
        store.fs.sync_dir(path)
        store.unsynced_dirs.discard(path)
        yield


class _Pair:
    """The two files of a growing segment, open for writing."""

    def __init__(self, store: SegmentStore, topic_id: int, first: int) -> None:
        self._store = store
        self._topic_id = topic_id
        self._first = first
        self._open: list[File] = []
        self._data_len = 0
        self._idx_len = 0

    def create(self) -> None:
        """Make new files, and the topic's directory if need be.

        Leftovers of an attempt that was given up are unlinked, not emptied: their pages may
        belong to a sync that failed.
        """
        store, files = self._store, self._store.files(self._topic_id, self._first)
        store.forget(self._topic_id, self._first)
        store.distrusted.discard((self._topic_id, self._first))
        store.fs.mkdirs(files.directory)
        # The parent too: the process that made the directory may have died before it synced that.
        store.unsynced_dirs.update((files.directory, parent_of(files.directory)))
        for path in files.data, files.idx, files.tag:
            with suppress(FileNotFoundError):
                store.fs.unlink(path)
        self._data = self._opened(files.data, new=True)
        self._idx = self._opened(files.idx, new=True)

    def reopen(self, active: ActiveSegment, *, now_ms: int) -> None:
        """Go on behind the recorded lengths; whatever lies past them is cut off."""
        store, files = self._store, self._store.files(self._topic_id, self._first)
        store.idx(self._topic_id, active)
        if (self._topic_id, self._first) in store.repairs:
            repair_idx(store, self._topic_id, active, now_ms=now_ms)
        self._data = self._opened(files.data)
        self._idx = self._opened(files.idx)
        self._data_len, self._idx_len = active.data_len, active.idx_len
        _cut(self._data, active.data_len, files.data)
        _cut(self._idx, active.idx_len, files.idx)

    def append(self, data: bytes, entries: bytes) -> None:
        """Add whole records and their index entries."""
        write_all(self._data, data, self._data_len)
        self._data_len += len(data)
        crashpoint("ckpt.data")
        write_all(self._idx, entries, self._idx_len)
        self._idx_len += len(entries)
        crashpoint("ckpt.idx")

    def sync_data(self) -> None:
        self._sync(self._data)

    def sync_idx(self) -> None:
        self._sync(self._idx)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def _opened(self, path: str, *, new: bool = False) -> File:
        store = self._store
        file = store.handles.retrying(lambda: store.fs.open(path, write=True, exclusive=new))
        self._open.append(file)
        return file

    def _sync(self, file: File) -> None:
        try:
            file.fdatasync()
        except OSError as error:
            self._store.distrusted.add((self._topic_id, self._first))
            raise SegmentSyncFailed(self._topic_id, self._first, error) from error


def _cut(file: File, length: int, path: str) -> None:
    found = file.size()
    if found < length:
        raise OSError(errno.EIO, f"segment file has {found} of {length} recorded bytes", path)
    if found > length:
        file.truncate(length)


class _Appender:
    """The segment being written, and those sealed on the way."""

    def __init__(
        self,
        store: SegmentStore,
        topic_id: int,
        active: ActiveSegment | None,
        *,
        settings: SegmentSettings,
        now_ms: int,
    ) -> None:
        self._store = store
        self._topic_id = topic_id
        self._settings = settings
        self._now_ms = now_ms
        self._recorded = active
        self._active = active
        self._added: list[bytes] = []  # entries behind those of `_recorded`
        self._pair: _Pair | None = None
        self._sealed: list[Segment] = []
        self._indexes: list[tuple[AnySegment, Idx]] = []

    def result(self) -> Written:
        active = self._active
        if active is not None and active.idx_h is None:
            idx = self._whole_idx()
            active = msgspec.structs.replace(active, idx_h=codec.idx_hash(idx))
            self._indexes.append((active, idx))
        return Written(self._topic_id, self._sealed, active, self._pair, self._indexes)

    def close(self) -> None:
        if self._pair is not None:
            self._pair.close()

    def begin(self) -> Generator[None, None, None]:
        """Seal a segment that is to grow no more."""
        active = self._active
        if active is not None and self._grows_no_more(active):
            yield from self._seal(active)

    def take(self, piece: Slice) -> Generator[None, None, None]:
        """Append one slice, to as many segments as it needs."""
        if self._active is not None and piece.first_seq != self._active.last + 1:
            yield from self._seal(self._active)
        lengths = [len(frame) for frame in piece.frames]
        start, count = 0, len(lengths)
        while start < count:
            if self._active is None and not lengths[start]:
                start += 1  # a dead seq begins no segment
                continue
            active = self._active or self._fresh(piece, start)
            end = start + _room(lengths, start, active, self._settings)
            self._extend(active, piece, lengths, start, end)
            start = end
            if self._is_full():
                assert self._active is not None
                yield from self._seal(self._active)

    def _fresh(self, piece: Slice, start: int) -> ActiveSegment:
        first, ts = piece.first_seq + start, piece.times[start]
        return ActiveSegment(first, first - 1, 0, 0, min_ts=ts, max_ts=ts, created_ms=self._now_ms)

    def _extend(
        self, active: ActiveSegment, piece: Slice, lengths: list[int], start: int, end: int
    ) -> None:
        data = codec.pack_records(piece.frames[start:end])
        entries = codec.build_idx(
            data_offset=active.data_len,
            lengths=lengths[start:end],
            times=piece.times[start:end],
            name_lengths=piece.name_lengths[start:end],
            flags=piece.flags[start:end],
            previous_ts=active.max_ts,
        )
        if self._pair is None:
            self._pair = self._open_pair(active)
        self._pair.append(data, entries)
        self._added.append(entries)
        self._active = msgspec.structs.replace(
            active,
            last=active.last + end - start,
            data_len=active.data_len + len(data),
            idx_len=active.idx_len + len(entries),
            max_ts=Idx(entries[-codec.ENTRY_SIZE :]).ts(0),
            idx_h=None,
        )

    def _open_pair(self, active: ActiveSegment) -> _Pair:
        pair = _Pair(self._store, self._topic_id, active.first)
        try:
            if active.data_len:
                pair.reopen(active, now_ms=self._now_ms)
            else:
                pair.create()
        except BaseException:
            pair.close()
            raise
        return pair

    def _seal(self, active: ActiveSegment) -> Generator[None, None, None]:
        if self._pair is not None:
            self._pair.sync_data()
            yield
            self._pair.sync_idx()
            self._pair.close()
            self._pair = None
            yield
        idx = self._whole_idx()
        segment = active.sealed(codec.idx_hash(idx))
        yield from write_tags(self._store, self._topic_id, segment, idx)
        self._store.to_seal.discard((self._topic_id, active.first))
        self._sealed.append(segment)
        self._indexes.append((segment, idx))
        self._active = self._recorded = None
        self._added = []

    def _whole_idx(self) -> Idx:
        recorded = self._recorded
        before = b"" if recorded is None else self._store.idx(self._topic_id, recorded).raw
        return Idx(b"".join([before, *self._added]))

    def _is_full(self) -> bool:
        active, settings = self._active, self._settings
        assert active is not None
        return active.count >= settings.max_records or active.data_len >= settings.max_bytes

    def _is_aged(self, active: ActiveSegment) -> bool:
        limit = self._settings.max_age_ms
        return limit > 0 and self._now_ms - active.created_ms >= limit

    def _grows_no_more(self, active: ActiveSegment) -> bool:
        key = self._topic_id, active.first
        store = self._store
        return self._is_aged(active) or key in store.distrusted or key in store.to_seal


def _room(lengths: list[int], start: int, active: ActiveSegment, settings: SegmentSettings) -> int:
    """How many records, at least one, go into this segment before a limit is reached."""
    most = max(1, min(len(lengths) - start, settings.max_records - active.count))
    size = active.data_len
    if size + sum(lengths) + len(lengths) < settings.max_bytes:
        return most
    for taken, length in enumerate(lengths[start : start + most], 1):
        size += length + 1 if length else 0
        if size >= settings.max_bytes:
            return taken
    return most


def write_tags(
    store: SegmentStore, topic_id: int, seg: Segment, idx: Idx
) -> Generator[None, None, None]:
    """Store the postings of a sealed segment, if any record in it has a tag.

    The file is a convenience that carries its own checksum: it is not synced, and a disk that
    refuses it costs a rebuild later, not the checkpoint.
    """
    wanted = tagfile.tagged_positions(idx)
    if not wanted:
        return
    tags = yield from store.collect_tags(topic_id, seg, idx, wanted)
    try:
        path = store.files(topic_id, seg.label).tag
        file = store.fs.open(path, write=True, create=True, truncate=True)
        try:
            write_all(file, tags, 0)
        finally:
            file.close()
    except OSError:
        store.tag_write_errors += 1

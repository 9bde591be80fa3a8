"""Reading segments: where their files lie, what their indexes say, which bytes to believe.

The store knows nothing of liveness beyond the delete bytes, and nothing of topics beyond their
ids. Its caller says which segments exist; the store finds the best copy of each and hands out
index arrays, verified frames and tag files.

Two tiers. A segment has its files in the data directory (hot), in the cold directory, or for the
length of a relocation in both. A copy is complete when `.data` and `.idx` both have their
registered sizes; a complete hot copy is read first, because while two exist they are identical.

What can be derived is never trusted and never fatal: an `.idx` that fails its hash, its length or
its arithmetic is rebuilt from `.data`, and a `.tag` file likewise. The rebuilt value serves at
once; `repairs` remembers it until the caller, if it may write, has `repair.py` store it.

One thread owns the store. `read` and `frames_at` touch no cache but the table of resolved tiers,
so they may also run on a pool of readers.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Generator
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from topics.storage import layout
from topics.storage.fs import File, Fs
from topics.storage.handles import Handles
from topics.storage.segments import codec, tagfile
from topics.storage.segments.codec import Idx
from topics.storage.segments.intact import agrees, intact_frames
from topics.storage.segments.lru import ByteLru
from topics.storage.segments.segment import (
    COLD,
    HOT,
    ActiveSegment,
    AnySegment,
    Segment,
    parts_of_label,
)
from topics.storage.segments.tagfile import TagFile

T = TypeVar("T")

Key: TypeAlias = tuple[int, int]
"""Topic id and label: what names a segment."""

IdxKey: TypeAlias = tuple[int, int, int]
"""The same and the number of its seqs: a segment that grows gets a new index each time."""

CACHE_BYTES = 64 << 20


class CopyState(Enum):
    """How the files of one tier compare with what is registered."""

    OK = "ok"
    LONGER = "longer"  # bytes past the registered lengths, which do not exist
    NO_IDX = "no idx"  # `.data` is whole, `.idx` is missing or cut: derivable
    SHORTER = "shorter"
    MISSING = "missing"

    @property
    def complete(self) -> bool:
        return self in (CopyState.OK, CopyState.LONGER)


class Copies(NamedTuple):
    """The state of a segment in each tier."""

    hot: CopyState
    cold: CopyState

    @property
    def best(self) -> int | None:
        """The tier to read: complete before rebuildable, hot before cold; None when lost."""
        for acceptable in (CopyState.OK, CopyState.LONGER), (CopyState.NO_IDX,):
            if self.hot in acceptable:
                return HOT
            if self.cold in acceptable:
                return COLD
        return None


class SegmentFiles(NamedTuple):
    """Paths of one segment in one tier."""

    directory: str
    data: str
    idx: str
    tag: str


@lru_cache(maxsize=1024)
def _files(root: str, topic_id: int, label: int, dropped: bool) -> SegmentFiles:
    """The paths of a segment; remembered, since making them costs as much as a small read."""
    first, version = parts_of_label(label)
    directory = (layout.deleted_topic_dir if dropped else layout.topic_dir)(root, topic_id)
    data, idx, tag = (
        f"{directory}/{layout.segment_name(first, part, version)}" for part in layout.SEGMENT_PARTS
    )
    return SegmentFiles(directory, data, idx, tag)


class SegmentStore:
    """All segments of a data directory and, if there is one, its cold directory."""

    def __init__(
        self,
        fs: Fs,
        handles: Handles,
        data_dir: str,
        cold_dir: str | None = None,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.fs = fs
        self.handles = handles
        self.data_dir = data_dir
        self.cold_dir = cold_dir
        self._idx: ByteLru[Key, Idx] = ByteLru(cache_bytes)
        self._in_use: WeakValueDictionary[IdxKey, Idx] = WeakValueDictionary()
        """Every index that the cache or a caller holds."""
        self._keeping = threading.Lock()  # guards which of two equal indexes is kept
        self.refuses_to_wait = False
        """Whether a missing index raises `NotLoaded` instead of being read in place: set while the
        caller can load it and ask again; see `core.loading`."""
        self.loaded_in_place = 0
        """Indexes that the owner of the state had to read itself while all other calls waited."""
        self._tiers: dict[Key, int] = {}
        self.repairs: dict[Key, AnySegment] = {}
        """Segments whose `.idx` on disk is bad and was rebuilt in memory."""
        self.distrusted: set[Key] = set()
        """Segments with a failed sync: what lies past their recorded lengths may never reach the
        disk, so they must not grow any more in this process."""
        self.to_seal: set[Key] = set()
        """Segments that the next checkpoint seals: erased bytes are written out of sealed ones."""
        self.dropped_topics: set[tuple[str, int]] = set()
        """Topics whose directory below a root has its deleted name; routed copies may still need
        them. Per root: a crash may come between the renames."""
        self.unsynced_dirs: set[str] = set()
        """Directories with new names that no `sync_dir` has covered yet."""
        self.cold_reads = 0
        self.rotten_frames = 0
        self.tags_rebuilt = 0
        self.tag_write_errors = 0

    @property
    def cached_bytes(self) -> int:
        """What indexes kept in memory take now; bounded."""
        return self._idx.used_bytes

    # Where files lie

    @property
    def tiers(self) -> tuple[int, ...]:
        return (HOT,) if self.cold_dir is None else (HOT, COLD)

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.data_dir,) if self.cold_dir is None else (self.data_dir, self.cold_dir)

    def files(self, topic_id: int, label: int, tier: int = HOT) -> SegmentFiles:
        """The paths of a segment, whether they exist or not."""
        root = self.data_dir
        if tier == COLD:
            assert self.cold_dir is not None
            root = self.cold_dir
        return _files(root, topic_id, label, (root, topic_id) in self.dropped_topics)

    def check(self, topic_id: int, seg: AnySegment) -> Copies:
        """Compare the files of both tiers with what is registered."""
        hot = self._copy_state(topic_id, seg, HOT)
        if self.cold_dir is None or isinstance(seg, ActiveSegment):
            return Copies(hot, CopyState.MISSING)
        return Copies(hot, self._copy_state(topic_id, seg, COLD))

    def tier_of(self, topic_id: int, seg: AnySegment) -> int:
        """Where to read a segment; `FileNotFoundError` when no tier has it."""
        if isinstance(seg, ActiveSegment):
            return HOT
        key = topic_id, seg.label
        tier = self._tiers.get(key)
        if tier is None:
            if self._copy_state(topic_id, seg, HOT).complete:
                tier = HOT
            else:
                tier = self.check(topic_id, seg).best
            if tier is None:
                path = self.files(topic_id, seg.label).data
                raise FileNotFoundError(errno.ENOENT, "segment is in no tier", path)
            self._tiers[key] = tier
        return tier

    def _copy_state(self, topic_id: int, seg: AnySegment, tier: int) -> CopyState:
        files = self.files(topic_id, seg.label, tier)
        data_len, idx_len = self._size(files.data), self._size(files.idx)
        if data_len is None:
            return CopyState.MISSING
        if data_len < seg.data_len:
            return CopyState.SHORTER
        if idx_len is None or idx_len < seg.idx_len:
            return CopyState.NO_IDX
        if data_len > seg.data_len or idx_len > seg.idx_len:
            return CopyState.LONGER
        return CopyState.OK

    def _size(self, path: str) -> int | None:
        try:
            return self.fs.size(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    # What was loaded

    def forget(self, topic_id: int, label: int) -> None:
        """Drop all that is remembered of a segment whose files change, move or go."""
        self._idx.drop((topic_id, label))
        self.repairs.pop((topic_id, label), None)
        self.forget_place(topic_id, label)

    def forget_place(self, topic_id: int, label: int) -> None:
        """Drop what is remembered of where a segment lies; its contents are the same."""
        self._tiers.pop((topic_id, label), None)
        for tier in self.tiers:
            for path in self.files(topic_id, label, tier)[1:]:
                self.handles.forget(path)

    def retired(self, topic_id: int, *, root: str | None = None) -> None:
        """The topic's directories, or the one below `root`, have their deleted name from now on."""
        for known_topic, label in list(self._tiers):
            if known_topic == topic_id:
                self.forget_place(topic_id, label)
        for place in self.roots if root is None else (root,):
            self.dropped_topics.add((place, topic_id))
            old_name = layout.topic_dir(place, topic_id)
            self.handles.forget_below(old_name)  # an open file keeps its space on the disk
            if old_name in self.unsynced_dirs:  # its files may still be wanted under the new one
                self.unsynced_dirs.discard(old_name)
                self.unsynced_dirs.add(layout.deleted_topic_dir(place, topic_id))

    def idx(self, topic_id: int, seg: AnySegment) -> Idx:
        """The index entries of a segment, one per seq, sure to describe its `.data`.

        The array is shared and its delete bytes change under flips.
        """
        found = self.known_idx(topic_id, seg)
        return self.keep(topic_id, seg, found or self._load_idx(topic_id, seg))

    def known_idx(self, topic_id: int, seg: AnySegment) -> Idx | None:
        """The same if it is in memory. It stays there as long as a caller keeps a reference."""
        known = self._idx.get((topic_id, seg.label))
        if known is not None and len(known) == seg.count:
            return known
        return self._in_use.get((topic_id, seg.label, seg.count))

    def keep(self, topic_id: int, seg: AnySegment, idx: Idx) -> Idx:
        """Have an index in memory; returns the one to use, which may have been there before."""
        with self._keeping:
            idx = self._in_use.setdefault((topic_id, seg.label, seg.count), idx)
        self._idx.put((topic_id, seg.label), idx, seg.idx_len)
        return idx

    def mark_dead(self, topic_id: int, seg: AnySegment, positions: list[int]) -> None:
        """Keep a loaded index in step with delete bytes that were written."""
        idx = self.known_idx(topic_id, seg)
        if idx is not None:
            for i in positions:
                idx.mark_dead(i)

    def _load_idx(self, topic_id: int, seg: AnySegment) -> Idx:
        path = self.files(topic_id, seg.label, self.tier_of(topic_id, seg)).idx
        try:
            raw = self._pread(path, seg.idx_len, 0)
        except FileNotFoundError:
            raw = b""
        if len(raw) == seg.count * codec.ENTRY_SIZE:
            idx = Idx(raw)
            if _is_believable(idx, seg):
                return idx
        return self._rebuilt(topic_id, seg)

    def _rebuilt(self, topic_id: int, seg: AnySegment) -> Idx:
        """The index as `.data` has it; the one on disk is to be repaired."""
        self.repairs[topic_id, seg.label] = seg
        data = self.read(topic_id, seg, 0, seg.data_len)
        return codec.rebuild_idx(data, topic_id=topic_id, first_seq=seg.first, count=seg.count)

    def restore_active(
        self, topic_id: int, *, first: int, last: int, data_len: int, idx_len: int
    ) -> ActiveSegment:
        """The active segment a snapshot recorded, its times read back from the index.

        The snapshot has no hash of that index, so it is held against the records.
        """
        bare = ActiveSegment(first, last, data_len, idx_len, min_ts=0, max_ts=0, created_ms=0)
        idx = self.idx(topic_id, bare)
        if (topic_id, first) not in self.repairs and not agrees(
            idx,
            partial(self.read, topic_id, bare),
            topic_id=topic_id,
            first=first,
            data_len=data_len,
        ):
            self._in_use.pop((topic_id, first, bare.count), None)
            idx = self.keep(topic_id, bare, self._rebuilt(topic_id, bare))
        min_ts, max_ts = idx.ts(0), idx.ts(idx.count - 1)
        return msgspec.structs.replace(
            bare, min_ts=min_ts, max_ts=max_ts, created_ms=min_ts, idx_h=codec.idx_hash(idx)
        )

    # Bytes

    def read(self, topic_id: int, seg: AnySegment, offset: int, size: int) -> bytes:
        """Raw bytes of `.data`, unverified. Errors of the disk pass through."""
        data = self._read_data(topic_id, seg, offset, size)
        if len(data) != size:
            path = self.files(topic_id, seg.label, self.tier_of(topic_id, seg)).data
            raise OSError(errno.EIO, "segment is shorter than registered", path)
        return data

    def frames(self, topic_id: int, seg: AnySegment, i: int, j: int) -> list[bytes | None]:
        """The verified frames of entries `i` to `j - 1`, read at one go; see `frames_at`."""
        return self.frames_at(topic_id, seg, self.idx(topic_id, seg), i, j)

    def frames_at(
        self, topic_id: int, seg: AnySegment, idx: Idx, i: int, j: int
    ) -> list[bytes | None]:
        """The verified frames of entries `i` to `j - 1` of an index the caller holds.

        Per entry the frame, `HOLE` where there never was one, or `None` when it is rotten in
        every copy: read again and, if there is one, from the other tier. The caller may have it
        elsewhere; if not, it must report the loss. Errors of the disk are no loss and pass
        through.
        """
        base = idx.offset(i)
        size = idx.offset(j - 1) + idx.length(j - 1) - base
        buf = self._read_data(topic_id, seg, base, size) if size else b""
        first = seg.first + i
        frames = intact_frames(buf, idx.entries(i, j), base=base, topic_id=topic_id, first=first)
        if None in frames:
            for at in [at for at, frame in enumerate(frames) if frame is None]:
                frames[at] = self._frame_again(topic_id, seg, idx, i + at)
            self.rotten_frames += frames.count(None)
        return frames

    def _frame_again(self, topic_id: int, seg: AnySegment, idx: Idx, i: int) -> bytes | None:
        here = self.tier_of(topic_id, seg)
        tiers = [here]
        if self.cold_dir is not None and isinstance(seg, Segment):
            tiers.append(HOT if here == COLD else COLD)
        offset = idx.offset(i)
        for tier in tiers:
            path = self.files(topic_id, seg.label, tier).data
            try:
                buf = self._pread(path, idx.length(i), offset)
            except FileNotFoundError:
                continue
            (frame,) = intact_frames(
                buf, [idx.entry(i)], base=offset, topic_id=topic_id, first=seg.first + i
            )
            if frame is not None:
                return frame
        return None

    def _read_data(self, topic_id: int, seg: AnySegment, offset: int, size: int) -> bytes:
        """Bytes from the best copy; fewer if the file is too short.

        The copy may be relocated at any moment, so one that is gone is looked for once more.
        """
        tier = self.tier_of(topic_id, seg)
        try:
            return self._read_tier(topic_id, seg, tier, offset, size)
        except FileNotFoundError:
            self._tiers.pop((topic_id, seg.label), None)
            tier = self.tier_of(topic_id, seg)
            return self._read_tier(topic_id, seg, tier, offset, size)

    def _read_tier(
        self, topic_id: int, seg: AnySegment, tier: int, offset: int, size: int
    ) -> bytes:
        if tier == COLD:
            self.cold_reads += 1
        return self._pread(self.files(topic_id, seg.label, tier).data, size, offset)

    def _pread(self, path: str, size: int, offset: int) -> bytes:
        with self.handles.borrow(path) as file:
            return read_up_to(file, size, offset)

    # Tags

    def tags(self, topic_id: int, seg: Segment) -> TagFile:
        """Per tag the seqs of the segment that carry it, deleted ones included.

        Read anew each time: the caller builds an index of the whole topic from it and keeps that.
        """
        idx = self.idx(topic_id, seg)
        wanted = tagfile.tagged_positions(idx)
        if not wanted:
            return tagfile.EMPTY
        stored = self._stored_tags(topic_id, seg)
        if stored is not None and tagfile.is_of(stored, seg.first, wanted):
            return stored
        self.tags_rebuilt += 1
        return tagfile.decode(finish(self.collect_tags(topic_id, seg, idx, wanted)))

    def collect_tags(
        self, topic_id: int, seg: Segment, idx: Idx, wanted: list[int]
    ) -> Generator[None, None, bytes]:
        """The tag file of a segment, made from its frames; yields between steps."""
        return tagfile.collect(
            lambda i, j: self.frames_at(topic_id, seg, idx, i, j), idx, wanted, first=seg.first
        )

    def _stored_tags(self, topic_id: int, seg: Segment) -> TagFile | None:
        path = self.files(topic_id, seg.label, self.tier_of(topic_id, seg)).tag
        try:
            with self.handles.borrow(path) as file:
                return tagfile.decode(read_up_to(file, file.size(), 0))
        except (OSError, tagfile.BadTagFile):
            return None  # all of it is in `.data`


def _is_believable(idx: Idx, seg: AnySegment) -> bool:
    """An index has its hash; one that was just found growing has only its arithmetic."""
    if seg.idx_h is not None:
        return codec.idx_hash(idx) == seg.idx_h
    return codec.is_sound(idx, seg.data_len)


def finish(work: Generator[object, Any, T]) -> T:
    """Run work that could be done in slices at one go."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def read_up_to(file: File, size: int, offset: int) -> bytes:
    """`size` bytes at `offset`, fewer only where the file ends."""
    data = file.pread(size, offset)
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and parts[-1]:
        parts.append(file.pread(missing, offset + size - missing))
        missing -= len(parts[-1])
    return b"".join(parts)

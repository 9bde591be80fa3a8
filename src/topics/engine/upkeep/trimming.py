"""Letting files go, once two durable snapshots no longer need them.

The newest two snapshots are kept, and with them every log byte at or after the positions of the
older one, so that falling back by one snapshot always works. A segment or a dropped topic's
directory goes only when the older of the two says as well that it is dead. Whatever cannot be
removed stays for the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from topics.engine.effects import PAUSE, Io, Op, stepwise
from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import Fs
from topics.storage.segments.drop import drop_segment, remove_topic
from topics.storage.segments.store import SegmentStore
from topics.storage.snapshots.lines import GroupPosition, HeadLine, TopicLine
from topics.storage.sources import Sources, WalSource


class Kept:
    """What a snapshot on disk still needs, or no longer does."""

    def __init__(self) -> None:
        self.files: frozenset[int] = frozenset()  # numbers
        self.generation = 0
        self.agnostic_lfn = 0
        self.groups: dict[str, GroupPosition] = {}
        self.topic_ids: set[int] = set()
        # By topic labels, and first seqs, of its segments; for topics that have any.
        self.dropped: dict[int, frozenset[int]] = {}
        self.sealed: dict[int, frozenset[int]] = {}

    def copy(self) -> Kept:
        other = Kept()
        other.topic_ids = set(self.topic_ids)
        other.dropped, other.sealed = dict(self.dropped), dict(self.sealed)
        return other

    def stand_at(self, head: HeadLine, files: Iterable[int]) -> None:
        """The snapshot reaches so far, and these are its files."""
        self.files = frozenset(files)
        self.generation = head.generation
        self.agnostic_lfn = head.agnostic_lfn
        self.groups = {position.key: position for position in head.groups}

    def put(self, line: TopicLine) -> None:
        """What it says of a topic."""
        self.topic_ids.add(line.id)
        _set(self.dropped, line.id, frozenset(label for label, _ in line.dropped_labels()))
        _set(self.sealed, line.id, frozenset(seg.first for seg in line.segs))

    def remove(self, topic_id: int) -> None:
        """It no longer lists a topic."""
        self.topic_ids.discard(topic_id)
        self.dropped.pop(topic_id, None)
        self.sealed.pop(topic_id, None)


def _set(table: dict[int, frozenset[int]], topic_id: int, firsts: frozenset[int]) -> None:
    if firsts:
        table[topic_id] = firsts
    else:
        table.pop(topic_id, None)


class Trimmer:
    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        store: SegmentStore,
        sources: Sources,
        *,
        newest: Kept | None,
        leftovers: list[GroupPosition],
        dropped: dict[int, list[tuple[int, int]]],
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._store = store
        self._sources = sources
        self._newest = newest
        self._leftovers = leftovers
        self._dropped = dropped
        self._trimmed = fs.exists(f"{data_dir}/{layout.META}/{layout.TRIMMED}")
        self.log_bytes_trimmed = 0
        self._settled: Mapping[int, frozenset[int]] = {}
        self.release_stages: Callable[[int, int], Op[None]] = _no_stages

    def leftovers(self) -> list[GroupPosition]:
        """Groups of an earlier layout, all of whose frames are in every snapshot from now on.

        They stay listed when their files are gone: should the layout come back, their frames
        are numbered on from there.
        """
        return list(self._leftovers)

    def dropped(self, topic_id: int) -> list[tuple[int, int]]:
        """Segments of a topic that are dead, or were written anew, and whose files may still be
        there: label and last seq."""
        return list(self._dropped.get(topic_id, ()))

    def is_settled(self, topic_id: int, first: int) -> bool:
        """Whether every snapshot on disk knows the segment as sealed.

        Only such a one may move: a snapshot in which it still grows looks for it where it grew.
        """
        return first in self._settled.get(topic_id, ())

    def replaced(self, topic_id: int, label: int, last: int) -> None:
        """A segment was written anew: its old files go once no snapshot on disk names them."""
        self._dropped.setdefault(topic_id, []).append((label, last))

    def note(self, line: TopicLine) -> None:
        """What the new snapshot says of a topic."""
        if dropped := line.dropped_labels():
            self._dropped[line.id] = dropped
        else:
            self._dropped.pop(line.id, None)

    def forget(self, topic_id: int) -> None:
        """The new snapshot no longer lists a topic."""
        self._dropped.pop(topic_id, None)

    def forget_all(self) -> None:
        """The new snapshot was made from nothing: only what it says counts."""
        self._dropped.clear()

    def trim(self, newest: Kept) -> Op[None]:
        """A new snapshot is durable: let go of what only older ones needed."""
        older, self._newest = self._newest, newest
        self._settled = (older or newest).sealed
        if older is None:
            return
        try:
            yield from self._prune_snapshots(older.files | newest.files)
            crashpoint("snap.pruned")
            for position in older.groups.values():
                yield from self._trim_group(position)
                yield PAUSE
            crashpoint("ckpt.trim")
            yield from self._drop_segments(older)
            yield from self._remove_topics(older, newest)
            yield from self.release_stages(older.generation, older.agnostic_lfn)
        except OSError:
            return  # what is left is found again by the next checkpoint

    def _prune_snapshots(self, kept: Collection[int]) -> Op[None]:
        meta = f"{self._data_dir}/{layout.META}"
        numbers = [layout.parse_snapshot(name) for name in (yield Io(self._lister(meta)))]
        gone = [n for n in numbers if n is not None and n not in kept]
        for number in sorted(gone, reverse=True):  # what is left of a chain can still be read
            path = layout.snapshot_path(self._data_dir, number)
            yield Io(partial(self._fs.unlink, path))
        if gone:
            yield Io(lambda: self._fs.sync_dir(meta))

    def _lister(self, path: str) -> Callable[[], list[str]]:
        return lambda: self._fs.listdir(path)

    # The log

    def _trim_group(self, position: GroupPosition) -> Op[None]:
        leftover = next((g for g in self._leftovers if g.key == position.key), None)
        if leftover is not None and position.lfn < leftover.lfn:
            leftover = None  # the older snapshot still needs its last frames
        directory = layout.group_dir(self._data_dir, position.key)
        try:
            names = yield Io(self._lister(directory))
        except FileNotFoundError:
            return
        files = sorted(n for n in map(layout.parse_wal, names) if n is not None)
        if leftover is None:
            files = [first for first in files if first < position.file_lfn]
        if not files:
            return
        yield from self._mark_trimmed()
        if leftover is not None:
            # CURRENT first: alone it would name a missing file, which means loss.
            yield Io(lambda: _unlink(self._fs, f"{directory}/{layout.CURRENT}"))
            yield Io(lambda: self._fs.sync_dir(directory))
        for first in files:
            path = layout.wal_path(directory, first)
            yield Io(partial(self._unlink_log, path))
        yield Io(lambda: self._fs.sync_dir(directory))
        if leftover is not None:
            yield from self._remove_group(position.key, directory)

    def _remove_group(self, key: str, directory: str) -> Op[None]:
        if key != layout.FLAT_GROUP:
            with suppress(OSError):
                yield Io(lambda: self._fs.rmdir(directory))
                yield Io(lambda: self._fs.sync_dir(f"{self._data_dir}/{layout.WAL}"))

    def _mark_trimmed(self) -> Op[None]:
        """From the first unlinked log file on, the log alone is no longer complete."""
        if self._trimmed:
            return
        meta = f"{self._data_dir}/{layout.META}"
        yield Io(lambda: self._fs.open(f"{meta}/{layout.TRIMMED}", write=True, create=True).close())
        yield Io(lambda: self._fs.sync_dir(meta))
        self._trimmed = True

    def _unlink_log(self, path: str) -> None:
        self.log_bytes_trimmed += self._fs.size(path)
        _unlink(self._fs, path)
        for source_id in self._sources:
            source = self._sources.get(source_id)
            if isinstance(source, WalSource) and source.path == path:
                self._sources.drop(source_id)

    # Segments and topics

    def _drop_segments(self, older: Kept) -> Op[None]:
        for topic_id, segments in list(self._dropped.items()):
            for label, last in list(segments):
                if label not in older.dropped.get(topic_id, ()):
                    continue
                crashpoint("drop.meta")
                errors = yield from stepwise(drop_segment(self._store, topic_id, label))
                if not errors:
                    segments.remove((label, last))

    def _remove_topics(self, older: Kept, newest: Kept) -> Op[None]:
        retired = sorted({topic_id for _, topic_id in self._store.dropped_topics})
        for topic_id in retired:
            if topic_id not in older.topic_ids and topic_id not in newest.topic_ids:
                yield from stepwise(remove_topic(self._store, topic_id))


def _no_stages(generation: int, agnostic_lfn: int) -> Op[None]:
    yield from ()


def _unlink(fs: Fs, path: str) -> None:
    with suppress(FileNotFoundError):
        fs.unlink(path)

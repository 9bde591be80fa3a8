"""From intact frames to facts: Append frames of one topic become one run of columns.

A fact per record would cost more than reading it, so consecutive records of a topic are gathered
into a single `Appended`. A run ends where anything else of its topic is logged, where its seqs do
not follow each other, and with the file. Only whole submissions may be given to a collector.
"""

from __future__ import annotations

from typing import Final

from topics.core.facts import Appended, Fact
from topics.storage.frames.append import appended_run
from topics.storage.frames.buffer import frame_of
from topics.storage.frames.header import (
    APPEND,
    DATA_START,
    HEADER,
    LENGTH_SIZE,
    ForeignFrame,
    Header,
)
from topics.storage.frames.payloads import FrameType
from topics.storage.sources import location
from topics.storage.wal.files import BEACON_SIZE

MARK: Final = int(FrameType.CHECKPOINT_MARK)
BEACON_KIND: Final = 0


class RunItem:
    """One entry in the making: a single fact, or a run that may still grow."""

    __slots__ = ("fact", "headers", "lfn", "next_seq", "offsets")

    def __init__(self, lfn: int, fact: Fact | None, next_seq: int = 0) -> None:
        self.lfn = lfn
        self.fact = fact
        self.next_seq = next_seq
        self.offsets: list[int] = []  # frames not yet in columns
        self.headers: list[Header] = []

    def extend(self, piece: Appended) -> None:
        """Let the run continue with `piece`."""
        run = self.fact
        if run is None:
            self.fact = piece
            return
        assert isinstance(run, Appended)
        if run.tags is not None or piece.tags is not None:
            head: list[str | None] = run.tags or [None] * run.count
            run.tags = head + (piece.tags or [None] * piece.count)
        run.offsets += piece.offsets
        run.lengths += piece.lengths
        run.times += piece.times
        run.name_lengths += piece.name_lengths
        run.flags += piece.flags


class Collector:
    """Gathers the facts of one log file."""

    def __init__(self, store_mark: int) -> None:
        self._store_mark = store_mark
        self._items: list[RunItem] = []
        self._open: dict[int, RunItem] = {}  # topic id -> its run that may continue
        self.last_beacon: int | None = None
        """Offset of the last beacon met; beacons are no entries."""

    def add(self, buf: bytes, offsets: list[int], first_lfn: int) -> None:
        """Take in adjacent frames; `ForeignFrame` when one makes no sense."""
        unpack = HEADER.unpack_from
        runs = self._open
        grown: dict[int, RunItem] = {}  # by id(): runs that got frames in this call
        for lfn, offset in enumerate(offsets, first_lfn):
            header: Header = unpack(buf, offset)
            _, kind, _, topic_id, seq, _, _, _, _ = header
            if kind == APPEND:
                run = runs.get(topic_id)
                if run is None or run.next_seq != seq:
                    run = self._begin(topic_id)
                run.offsets.append(offset)
                run.headers.append(header)
                run.next_seq = seq + 1
                run.lfn = lfn
                grown[id(run)] = run
            elif self._is_beacon(buf, offset, header):
                self.last_beacon = offset
            else:
                runs.pop(topic_id, None)
                self._items.append(RunItem(lfn, self._fact(buf, offset, header)))
        for run in grown.values():
            run.extend(appended_run(buf, run.offsets, run.headers))
            run.offsets, run.headers = [], []

    def _begin(self, topic_id: int) -> RunItem:
        run = RunItem(0, None)
        self._open[topic_id] = run
        self._items.append(run)
        return run

    def _is_beacon(self, buf: bytes, offset: int, header: Header) -> bool:
        frame_len, kind, _, _, seq, _, _, _, _ = header
        return (
            kind == MARK
            and frame_len == BEACON_SIZE - LENGTH_SIZE
            and seq == self._store_mark
            and buf[offset + DATA_START] == BEACON_KIND
        )

    @staticmethod
    def _fact(buf: bytes, offset: int, header: Header) -> Fact:
        fact = frame_of(offset, header).fact(buf)
        _, kind, _, _, seq, _, _, _, _ = header
        if kind == FrameType.FILE_HEADER:
            raise ForeignFrame(offset, "a file header inside a file")
        if kind == MARK and seq:
            raise ForeignFrame(offset, "a beacon of another store")
        return fact

    def entries(self, source_id: int) -> list[tuple[int, Fact]]:
        """All facts in log order, each with the lfn of its last frame."""
        base = location(source_id, 0)
        found: list[tuple[int, Fact]] = []
        for item in self._items:
            assert item.fact is not None
            if isinstance(item.fact, Appended):
                item.fact.base = base
            found.append((item.lfn, item.fact))
        return found

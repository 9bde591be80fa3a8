"""Checking segments: every record, and what index and tag file say of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from topics.storage.findings import Report
from topics.storage.frames.header import FLAG_TAG, HEADER
from topics.storage.fs import Fs, read_file
from topics.storage.segments import codec, tagfile
from topics.storage.segments.codec import DEAD, Entry, Idx
from topics.storage.segments.intact import describes, intact_frames
from topics.storage.segments.segment import AnySegment, Segment
from topics.storage.segments.store import SegmentFiles, SegmentStore

CHUNK = 2048


class SegmentCheck:
    """One copy of one segment."""

    def __init__(
        self, report: Report, topic: str, topic_id: int, segment: AnySegment, files: SegmentFiles
    ) -> None:
        self._report = report
        self._topic = topic
        self._topic_id = topic_id
        self._segment = segment
        self._files = files
        self._tags: dict[str, array[int]] = {}
        self._is_whole = True

    def run(self) -> None:
        report, segment, files = self._report, self._segment, self._files
        data = read_file(report.fs, files.data)
        if len(data) < segment.data_len:
            what = f"has {len(data)} bytes instead of {segment.data_len}"
            report.wrong(files.data, what, offset=len(data), topic=self._topic)
        elif len(data) > segment.data_len:
            report.notes.append(f"{files.data} is longer than recorded; the rest does not count")
        data = data[: segment.data_len]
        idx = self._index(data)
        for i in range(0, idx.count, CHUNK):
            self._records(data, idx, i, min(i + CHUNK, idx.count))
        report.done_with(files.data)
        self._tag_file(idx)

    def _index(self, data: bytes) -> Idx:
        """The index as stored; a bad one is reported and replaced by what `.data` says."""
        report, segment, path = self._report, self._segment, self._files.idx
        if not report.fs.exists(path):
            report.wrong(path, "is missing; the next open rebuilds it", topic=self._topic)
        else:
            raw = read_file(report.fs, path)[: segment.idx_len]
            report.done_with(path)
            what = _index_fault(raw, segment)
            if what is None:
                return Idx(raw)
            report.wrong(path, f"{what}; the next open rebuilds it", topic=self._topic)
        return codec.rebuild_idx(
            data, topic_id=self._topic_id, first_seq=segment.first, count=segment.count
        )

    def _records(self, data: bytes, idx: Idx, i: int, j: int) -> None:
        first = self._segment.first + i
        entries = list(idx.entries(i, j))
        frames = intact_frames(data, entries, base=0, topic_id=self._topic_id, first=first)
        for seq, (entry, frame) in enumerate(zip(entries, frames, strict=True), first):
            if frame is None:
                self._is_whole = False
                self._wrong(seq, entry[0], "the record is damaged or not the one that belongs here")
            elif frame:
                self._report.note_record(self._topic)
                self._compare(seq, entry, frame, data)

    def _compare(self, seq: int, entry: Entry, frame: bytes, data: bytes) -> None:
        offset, length, _, flags, dead, _ = entry
        if not describes(entry, HEADER.unpack_from(frame)):
            self._report.wrong(
                self._files.idx,
                "says something else of this record than the record itself",
                offset=(seq - self._segment.first) * codec.ENTRY_SIZE,
                topic=self._topic,
                seq=seq,
            )
        mark = data[offset + length : offset + length + 1]
        if dead == DEAD and mark != bytes((DEAD,)):
            self._wrong(seq, offset + length, "deleted by its index, live by its delete byte")
        if flags & FLAG_TAG:
            self._tags.setdefault(tagfile.tag_of(frame), array("Q")).append(seq)

    def _wrong(self, seq: int, offset: int, what: str) -> None:
        self._report.wrong(self._files.data, what, offset=offset, topic=self._topic, seq=seq)

    def _tag_file(self, idx: Idx) -> None:
        report, path = self._report, self._files.tag
        if not isinstance(self._segment, Segment):
            return
        if not report.fs.exists(path):
            if self._tags:
                report.notes.append(f"{path} is missing; it can be had from the records")
            return
        try:
            found = tagfile.decode(read_file(report.fs, path))
        except tagfile.BadTagFile as error:
            report.wrong(path, f"{error}; it can be had from the records", topic=self._topic)
        else:
            if self._is_whole and dict(found) != self._tags:
                report.wrong(path, "lists other tags than the records have", topic=self._topic)
        report.done_with(path)


def _index_fault(raw: bytes, segment: AnySegment) -> str | None:
    if len(raw) != segment.count * codec.ENTRY_SIZE:
        return f"has {len(raw)} bytes instead of {segment.count * codec.ENTRY_SIZE}"
    idx = Idx(raw)
    if isinstance(segment, Segment) and codec.idx_hash(idx) != segment.idx_h:
        return "its hash is not the recorded one"
    if not codec.is_sound(idx, segment.data_len):
        return "its entries do not add up"
    return None


class SegmentJob(NamedTuple):
    """One copy of one segment of one topic, to be checked wherever its files can be read."""

    topic: str
    topic_id: int
    segment: AnySegment
    files: SegmentFiles

    def run(self, report: Report) -> None:
        SegmentCheck(report, self.topic, self.topic_id, self.segment, self.files).run()


def segment_jobs(
    store: SegmentStore, fs: Fs, topic: str, topic_id: int, segments: Iterable[AnySegment]
) -> Iterator[SegmentJob]:
    """Every copy of a topic's segments; that one exists at all is recovery's to judge."""
    for segment in segments:
        for tier in store.tiers:
            files = store.files(topic_id, segment.label, tier)
            if fs.exists(files.data):
                yield SegmentJob(topic, topic_id, segment, files)

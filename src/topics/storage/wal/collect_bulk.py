"""The collector for large logs: the same facts, with numpy.

Importing numpy takes longer than reading a small log, so this module is imported only once there
is enough to read. It must give what `collect.Collector` gives, frame for frame.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from topics.core.facts import Appended
from topics.storage.frames.columns import HEADER_FIELDS, gather, headers_at
from topics.storage.frames.header import (
    APPEND,
    DATA_START,
    FLAG_NODE,
    FLAG_TAG,
    HEADER,
    JSON_LEN_SIZE,
    LENGTH_SIZE,
    MAX_NAME,
    MIN_FRAME_LEN,
    ForeignFrame,
)
from topics.storage.wal.collect import BEACON_KIND, MARK, Collector, RunItem
from topics.storage.wal.files import BEACON_SIZE

_OPAQUE: Final = np.dtype(f"V{HEADER.size}")

Table = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class BulkCollector(Collector):
    """Gathers the facts of one large log file."""

    def add(self, buf: bytes, offsets: list[int], first_lfn: int) -> None:
        places = np.array(offsets, dtype=np.int64)
        heads = headers_at(buf, places)
        appends = heads["type"] == APPEND
        beacons = self._beacons(buf, places, heads)
        if beacons.any():
            self.last_beacon = int(places[beacons][-1])
        tags = _check_appends(buf, places[appends], _pick(heads, appends))
        order = np.flatnonzero(~beacons)
        order = order[np.argsort(heads["topic_id"][order], kind="stable")]
        if len(order):
            self._add_groups(buf, _SortedFrames(places, heads, order, tags, first_lfn))

    def _beacons(self, buf: bytes, places: Numbers, heads: Table) -> Truths:
        found: Truths = (heads["type"] == MARK) & (heads["frame_len"] == BEACON_SIZE - LENGTH_SIZE)
        found &= heads["seq"] == self._store_mark
        if found.any():
            kinds = np.frombuffer(buf, np.uint8)[places[found] + DATA_START]
            found[found] = kinds == BEACON_KIND
        return found

    def _add_groups(self, buf: bytes, columns: _SortedFrames) -> None:
        """Frames of a topic that form one run, or one other frame, at a time, in log order."""
        starts, ends = columns.groups()
        for group in np.argsort(columns.order[starts], kind="stable").tolist():
            start, end = int(starts[group]), int(ends[group])
            topic_id = int(columns.topics[start])
            lfn = columns.lfn(end - 1)
            if columns.appends[start]:
                self._add_run(topic_id, lfn, columns.run(start, end))
            else:
                self._open.pop(topic_id, None)
                offset = int(columns.places[start])
                header = HEADER.unpack_from(buf, offset)
                self._items.append(RunItem(lfn, self._fact(buf, offset, header)))

    def _add_run(self, topic_id: int, lfn: int, piece: Appended) -> None:
        run = self._open.get(topic_id)
        if run is None or run.next_seq != piece.first_seq:
            run = self._begin(topic_id)
        run.extend(piece)
        run.lfn = lfn
        run.next_seq = piece.last_seq + 1


class _SortedFrames:
    """The frames of one call, sorted by topic and within a topic as logged."""

    def __init__(
        self,
        places: Numbers,
        heads: Table,
        order: Numbers,
        tags: dict[int, str],
        first_lfn: int,
    ) -> None:
        heads = _pick(heads, order)
        self.order = order
        self.places = places[order]
        self.appends: Truths = heads["type"] == APPEND
        self.topics = np.ascontiguousarray(heads["topic_id"])
        self.seqs = np.ascontiguousarray(heads["seq"])
        self._offsets = self.places.astype(np.uint32)
        self._lengths = heads["frame_len"] + np.uint32(4)
        self._times = np.ascontiguousarray(heads["ts"])
        self._names = heads["node_len"] + heads["tag_len"]
        self._flags = np.ascontiguousarray(heads["flags"])
        self._tags = tags
        self._first_lfn = first_lfn

    def groups(self) -> tuple[Numbers, Numbers]:
        """Where groups start and end: runs of consecutive records, or single other frames."""
        appends, topics, seqs = self.appends, self.topics, self.seqs
        joined = (topics[1:] == topics[:-1]) & (seqs[1:] == seqs[:-1] + np.uint64(1))
        joined &= appends[1:] & appends[:-1]
        inner = np.flatnonzero(~joined) + 1
        starts = np.concatenate(([0], inner)).astype(np.int64)
        return starts, np.concatenate((inner, [len(topics)])).astype(np.int64)

    def lfn(self, index: int) -> int:
        return self._first_lfn + int(self.order[index])

    def run(self, start: int, end: int) -> Appended:
        return Appended(
            int(self.topics[start]),
            int(self.seqs[start]),
            array("I", self._offsets[start:end].tobytes()),
            array("I", self._lengths[start:end].tobytes()),
            array("Q", self._times[start:end].tobytes()),
            array("H", self._names[start:end].tobytes()),
            array("B", self._flags[start:end].tobytes()),
            self._tags_of(start, end),
        )

    def _tags_of(self, start: int, end: int) -> list[str | None] | None:
        if not self._tags or not (self._flags[start:end] & FLAG_TAG).any():
            return None
        return [self._tags.get(place) for place in self.places[start:end].tolist()]


def _pick(heads: Table, which: Numbers | Truths) -> Table:
    """Some of the headers; as opaque bytes they are copied many times faster than by field."""
    return heads.view(_OPAQUE)[which].view(HEADER_FIELDS)


def _check_appends(buf: bytes, places: Numbers, heads: Table) -> dict[int, str]:
    """Insist that these are sound Append frames; returns the tags by offset."""
    if not len(places):
        return {}
    names = heads["node_len"].astype(np.int64) + heads["tag_len"]
    data = heads["data_len"].astype(np.int64)
    _insist(places, names + data + MIN_FRAME_LEN == heads["frame_len"])
    _insist(places, data >= JSON_LEN_SIZE)
    json = gather(buf, places + DATA_START + names, JSON_LEN_SIZE).view("<u4")[:, 0]
    _insist(places, json <= data - JSON_LEN_SIZE)
    _insist(places, (heads["node_len"] <= MAX_NAME) & (heads["tag_len"] <= MAX_NAME))
    flags = heads["flags"]
    _insist(places, (heads["node_len"] == 0) | (flags & FLAG_NODE != 0))
    _insist(places, (heads["tag_len"] == 0) | (flags & FLAG_TAG != 0))
    named = (names > 0) | (flags & FLAG_TAG != 0)
    if not named.any():
        return {}
    return _tags(buf, places[named].tolist(), _pick(heads, named))


def _insist(places: Numbers, sound: Truths) -> None:
    if not sound.all():
        raise ForeignFrame(int(places[~sound][0]), "not a sound Append frame")


def _tags(buf: bytes, places: list[int], heads: Table) -> dict[int, str]:
    tags: dict[int, str] = {}
    rows = zip(
        places,
        heads["flags"].tolist(),
        heads["node_len"].tolist(),
        heads["tag_len"].tolist(),
        strict=True,
    )
    for place, flags, node, tag in rows:
        middle = place + DATA_START + node
        try:
            buf[place + DATA_START : middle].decode()
            text = buf[middle : middle + tag].decode()
        except UnicodeDecodeError as error:
            raise ForeignFrame(place, f"node or tag: {error}") from error
        if flags & FLAG_TAG:
            tags[place] = text
    return tags

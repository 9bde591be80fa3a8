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
from topics.storage.frames.header import FLAG_NODE, FLAG_TAG, HEADER, MAX_NAME, ForeignFrame
from topics.storage.wal.collect import _APPEND, _BEACON_KIND, _DATA_START, _MARK, Collector, Item
from topics.storage.wal.files import BEACON_SIZE

_HEADER: Final = np.dtype(
    [
        ("size", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("topic", "<u8"),
        ("seq", "<u8"),
        ("time", "<u8"),
        ("node", "<u2"),
        ("tag", "<u2"),
        ("data", "<u4"),
    ]
)
_OPAQUE: Final = np.dtype(f"V{HEADER.size}")
assert _HEADER.itemsize == HEADER.size

Table = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class BulkCollector(Collector):
    """Gathers the facts of one large log file."""

    def add(self, buf: bytes, offsets: list[int], first_lfn: int) -> None:
        places = np.array(offsets, dtype=np.int64)
        heads = _at_any_offset(buf, _OPAQUE)[places].view(_HEADER)
        appends = heads["kind"] == _APPEND
        beacons = self._beacons(buf, places, heads)
        if beacons.any():
            self.last_beacon = int(places[beacons][-1])
        tags = _check_appends(buf, places[appends], _pick(heads, appends))
        order = np.flatnonzero(~beacons)
        order = order[np.argsort(heads["topic"][order], kind="stable")]
        if len(order):
            self._add_groups(buf, _Columns(places, heads, order, tags, first_lfn))

    def _beacons(self, buf: bytes, places: Numbers, heads: Table) -> Truths:
        found: Truths = (heads["kind"] == _MARK) & (heads["size"] == BEACON_SIZE - 4)
        found &= heads["seq"] == self._store_mark
        if found.any():
            kinds = np.frombuffer(buf, np.uint8)[places[found] + _DATA_START]
            found[found] = kinds == _BEACON_KIND
        return found

    def _add_groups(self, buf: bytes, columns: _Columns) -> None:
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
                self._items.append(Item(lfn, self._fact(buf, offset, header)))

    def _add_run(self, topic_id: int, lfn: int, piece: Appended) -> None:
        run = self._open.get(topic_id)
        if run is None or run.next_seq != piece.first_seq:
            run = self._begin(topic_id)
        run.extend(piece)
        run.lfn = lfn
        run.next_seq = piece.last_seq + 1


class _Columns:
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
        self.appends: Truths = heads["kind"] == _APPEND
        self.topics = np.ascontiguousarray(heads["topic"])
        self.seqs = np.ascontiguousarray(heads["seq"])
        self._offsets = self.places.astype(np.uint32)
        self._lengths = heads["size"] + np.uint32(4)
        self._times = np.ascontiguousarray(heads["time"])
        self._names = heads["node"] + heads["tag"]
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


def _at_any_offset(buf: bytes, dtype: np.dtype[Any]) -> Table:
    """`buf` as items of `dtype` that begin at every byte: index it with offsets."""
    return np.ndarray((len(buf) - dtype.itemsize + 1,), dtype, buf, strides=(1,))


def _pick(heads: Table, which: Numbers | Truths) -> Table:
    """Some of the headers; as opaque bytes they are copied many times faster than by field."""
    return heads.view(_OPAQUE)[which].view(_HEADER)


def _check_appends(buf: bytes, places: Numbers, heads: Table) -> dict[int, str]:
    """Insist that these are sound Append frames; returns the tags by offset."""
    if not len(places):
        return {}
    names = heads["node"].astype(np.int64) + heads["tag"]
    data = heads["data"].astype(np.int64)
    _insist(places, names + data + HEADER.size + 4 == heads["size"])
    _insist(places, data >= 4)
    json = _at_any_offset(buf, np.dtype("<u4"))[places + _DATA_START + names]
    _insist(places, json <= data - 4)
    _insist(places, (heads["node"] <= MAX_NAME) & (heads["tag"] <= MAX_NAME))
    flags = heads["flags"]
    _insist(places, (heads["node"] == 0) | (flags & FLAG_NODE != 0))
    _insist(places, (heads["tag"] == 0) | (flags & FLAG_TAG != 0))
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
        heads["node"].tolist(),
        heads["tag"].tolist(),
        strict=True,
    )
    for place, flags, node, tag in rows:
        middle = place + _DATA_START + node
        try:
            buf[place + _DATA_START : middle].decode()
            text = buf[middle : middle + tag].decode()
        except UnicodeDecodeError as error:
            raise ForeignFrame(place, f"node or tag: {error}") from error
        if flags & FLAG_TAG:
            tags[place] = text
    return tags

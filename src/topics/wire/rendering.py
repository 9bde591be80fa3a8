"""Stored records as JSON, without looking inside them.

Payloads are JSON already, so a page is a matter of copying: numbers are formatted a column at a
time, names are escaped once each, and one join puts everything in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from topics.values import Record

Row = tuple[int, int, str | None, str | None, bytes, bytes | None]
"""A record as (seq, ts, node, tag, data, meta)."""

_encode = msgspec.json.Encoder().encode


class Include(msgspec.Struct, frozen=True, gc=False):
    """Which parts of a record its reader asked for."""

    tags: bool = False
    meta: bool = True
    data: bool = True


DEFAULT = Include()
EVERYTHING = Include(tags=True)


def rows_of(records: Iterable[Record]) -> list[Row]:
    """Records of the Python API as rows."""
    return [(r.seq, r.ts, r.node, r.tag, r.raw, r.raw_meta) for r in records]


def render_records(rows: Sequence[Row], include: Include = DEFAULT) -> bytes:
    """A JSON array of records; parts that are absent or were not asked for have no key."""
    if len(rows) <= 1:
        return b"[%b]" % _record(rows[0], include) if rows else b"[]"
    seqs, times, nodes, tags, datas, metas = zip(*rows, strict=True)
    page = _Page(len(rows))
    page.add(b'},{"$seq":', _numbers(seqs))
    page.add(b',"$ts":', _numbers(times))
    if nodes.count(None) < len(rows):
        page.add(b"", _names(b',"$node":', nodes))
    if include.tags and tags.count(None) < len(rows):
        page.add(b"", _names(b',"$tag":', tags))
    if include.data:
        page.add(b',"data":', datas)
    if include.meta and metas.count(None) < len(rows):
        page.add(b"", [b',"meta":%b' % meta if meta else b"" for meta in metas])
    # Every record begins by closing the one before it; the first closes nothing.
    return b"[%b}]" % page.join()[2:]


def _record(row: Row, include: Include) -> bytes:
    """A record alone: for columns it takes several."""
    seq, ts, node, tag, data, meta = row
    shown = b'{"$seq":%d,"$ts":%d' % (seq, ts)
    if node is not None:
        shown += b',"$node":' + _encode(node)
    if tag is not None and include.tags:
        shown += b',"$tag":' + _encode(tag)
    if include.data:
        shown += b',"data":' + data
    if meta and include.meta:
        shown += b',"meta":' + meta
    return shown + b"}"


class _Page:
    """Columns to be interleaved: a slice assignment for each beats a step for each record."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: list[bytes] = []
        self._columns: list[Sequence[bytes]] = []

    def add(self, key: bytes, column: Sequence[bytes]) -> None:
        """The next part of every record, each behind `key`."""
        self._keys.append(key)
        self._columns.append(column)

    def join(self) -> bytes:
        width = 2 * len(self._keys)
        parts = [part for key in self._keys for part in (key, b"")] * self._size
        for index, column in enumerate(self._columns):
            parts[2 * index + 1 :: width] = column
        return b"".join(parts)


def _numbers(numbers: Sequence[int]) -> list[bytes]:
    """Each number as text. Encoding one list and cutting it is cheaper than one at a time."""
    return _encode(numbers)[1:-1].split(b",")


def _names(key: bytes, names: Sequence[str | None]) -> list[bytes]:
    """Each name behind its key, escaped once however often it comes; nothing for no name."""
    spelled = {name: b"" if name is None else key + _encode(name) for name in set(names)}
    return [spelled[name] for name in names]

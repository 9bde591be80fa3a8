"""Where a long body can be cut: between the records of its `records` array.

Decoding 64 MiB of JSON in one go would block all other requests, and a parser cannot be stopped
half-way. So the body is cut into pieces of whole records, and each piece is decoded like a short
body. A place to cut is guessed, not searched for: the records of one writer begin alike, so a
record ends where the next one seems to begin. In valid JSON only objects inside a payload can look
the same. Then the piece is not a list of whole values, which is checked.

Nothing here decides what a body says. The pieces are taken for the records if every piece is a list
of values, and if the body, with one known record in place of all pieces, has just that record.
Bodies that cannot be cut like this are `Uncuttable`; they may still be valid.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

import msgspec

PIECE_BYTES = 1 << 16
"""About the size of a piece, unless a single record is longer."""
_HEAD_BYTES = 1 << 16
"""Where the records have to begin."""
_FAR_BYTES = 9 << 20
"""How far ahead the next record is looked for: no setting allows one of more than 8 MiB."""
_MAX_TRIES = 64
"""Places that look like the end of a piece, until it is one."""
_MAX_CLOSINGS = 4

_SPACE = rb"[ \n\r\t]*"
_opening = re.compile(rb'"records"' + _SPACE + rb":" + _SPACE + rb"\[")
_beginning = re.compile(rb"(" + _SPACE + rb")(\{" + _SPACE + rb'"[a-z]{1,16}"' + _SPACE + rb":)")
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Uncuttable(Exception):
    """The records are not where they usually are, or do not look alike."""


class RecordCutter:
    """Takes the body of a write apart: all `pieces` first, then the `rest`."""

    def __init__(self, body: bytes, *, piece_bytes: int = PIECE_BYTES) -> None:
        found = _opening.search(body, 0, _HEAD_BYTES)
        if found is None:
            raise Uncuttable
        self._body = body
        self._piece_bytes = piece_bytes
        self._opened = found.end()
        self._closed = -1
        self._border = _border(body, self._opened)

    def rest(self, record: bytes) -> bytes:
        """The body with `record` as its only record."""
        assert self._closed >= 0, "all pieces come first"
        return self._body[: self._opened] + record + self._body[self._closed :]

    def pieces(self) -> Iterator[bytes | None]:
        """Lists of values one after the other, without their brackets; None after a wrong guess."""
        start = self._opened
        while (end := (yield from self._next(start))) is not None:
            yield self._body[start:end]
            start = end + 1
        self._closed = yield from self._last(start)
        yield self._body[start : self._closed]

    def _next(self, start: int) -> Generator[None, None, int | None]:
        """Where the piece that begins here ends; None for the last one."""
        body, border = self._body, self._border
        at = start + self._piece_bytes
        for _ in range(_MAX_TRIES):
            at = body.find(border, at, at + _FAR_BYTES)
            if at < 0:
                return None
            if _is_list(body[start : at + 1]):
                return at + 1  # the comma
            at += 1
            yield
        raise Uncuttable

    def _last(self, start: int) -> Generator[None, None, int]:
        """The place of the bracket that closes the records."""
        body, end = self._body, len(self._body)
        if end - start > self._piece_bytes + _FAR_BYTES:
            raise Uncuttable
        for _ in range(_MAX_CLOSINGS):
            end = body.rfind(b"]", start, end)
            if end < 0:
                break
            if _is_list(body[start:end]):
                return end
            yield
        raise Uncuttable


def _border(body: bytes, at: int) -> bytes:
    """What stands between two records that begin like the first."""
    first = _beginning.match(body, at)
    if first is None:
        raise Uncuttable
    space, begin = first.groups()
    borders = {b"}," + between + begin for between in (space, b"", b" ", b"\n")}
    found = ((body.find(border, at, at + _FAR_BYTES), border) for border in borders)
    nearest = min(((place, border) for place, border in found if place >= 0), default=None)
    if nearest is None:
        raise Uncuttable
    return nearest[1]


def _is_list(piece: bytes) -> bool:
    try:
        _skim(b"[%b]" % piece)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True

"""Long bodies with records, decoded in steps, so that other requests are served between two steps.

The body is cut between records (`cutting`), and each piece goes through the decoder of short
bodies. If a piece is invalid, or if the body cannot be cut, the answer is None: the whole body then
has to go through that decoder, whose answer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import msgspec

from topics.batch import RecordBatch
from topics.errors import InvalidRequest
from topics.wire.cutting import PIECE_BYTES, RecordCutter, Uncuttable
from topics.wire.requests.stages import StageRequest, decode_stage
from topics.wire.requests.watching import Command, PublishCommand, decode_command
from topics.wire.requests.writing import (
    REFUSED_RECORDS,
    WriteRequest,
    decode_write,
)

T = TypeVar("T")
V = TypeVar("V")
Steps: TypeAlias = Generator[None, None, T]
"""Work that yields where it may be left for a moment."""

LONG_BODY_BYTES = 2 << 20
"""A longer body is decoded in steps; for a shorter one that costs more than it saves."""

_BODY = b'{"records":[%b]}'
_RECORD = b'{"data":"all of them","topic":""}'
_DATA = b'"all of them"'


class _Columns:
    """The records of all pieces so far; beyond `most` they are counted and no more."""

    def __init__(self, most: int | None = None) -> None:
        self.count = 0
        self._most = most
        self._datas: list[bytes] = []
        self._metas: list[bytes] | None = None
        self._tags: list[str | None] | None = None
        self._nodes: list[str | None] | None = None

    @property
    def is_refused(self) -> bool:
        """Whether there are more records than any server takes in one write."""
        return self._most is not None and self.count > self._most

    def add(self, some: RecordBatch) -> None:
        """Take the records of one piece."""
        if not some.datas:
            raise Uncuttable  # nothing between two commas is no record
        before, self.count = self.count, self.count + len(some)
        if self.is_refused:
            self._datas, self._metas, self._tags, self._nodes = [], None, None, None
            return
        self._datas += some.datas
        self._metas = _extended(self._metas, some.metas, b"", before, len(some))
        self._tags = _extended(self._tags, some.tags, None, before, len(some))
        self._nodes = _extended(self._nodes, some.nodes, None, before, len(some))

    def drafts(self, *, node: str | None = None) -> RecordBatch:
        """All of them; `node` stands in where a record has none."""
        if self.is_refused:
            return RecordBatch([b""] * self.count)
        nodes = self._nodes
        if node is not None:
            own = nodes or [None] * self.count
            nodes = [node if name is None else name for name in own]
        return RecordBatch(self._datas, self._metas, self._tags, nodes)


def _extended(
    column: list[V] | None, more: list[V] | None, absent: V, before: int, count: int
) -> list[V] | None:
    """A column and what one piece has for it; None while no record used it."""
    if column is None:
        if more is None:
            return None
        column = [absent] * before
    column += [absent] * count if more is None else more
    return column


def _each_piece(body: bytes, piece_bytes: int, take: Callable[[bytes], None]) -> Steps[bytes]:
    """Give every piece away as a body of its own; returns that with `_RECORD` for all of them."""
    cutter = RecordCutter(body, piece_bytes=piece_bytes)
    for piece in cutter.pieces():
        if piece is not None:
            take(_BODY % piece)
        yield
    rest = cutter.rest(_RECORD)
    if rest.count(_DATA) > 1:
        raise Uncuttable  # `_RECORD` could not be told from a record of the body
    return rest


def _insist_on_place(rest: RecordBatch) -> None:
    """The one record in what is left is found if and only if the others were its records."""
    if rest.datas != [_DATA]:
        raise Uncuttable


def decode_write_in_steps(
    body: bytes, *, piece_bytes: int = PIECE_BYTES
) -> Steps[WriteRequest | None]:
    """`decode_write` in steps; None if only `decode_write` itself can decode the body."""
    columns = _Columns(REFUSED_RECORDS)
    try:
        rest = yield from _each_piece(
            body, piece_bytes, lambda part: columns.add(decode_write(part).drafts)
        )
        sent = decode_write(rest)
        _insist_on_place(sent.drafts)
    except (InvalidRequest, Uncuttable):
        return None
    if columns.is_refused:
        return WriteRequest(columns.drafts())
    return _with_all(sent, columns)


def _with_all(sent: WriteRequest, columns: _Columns) -> WriteRequest:
    (node,) = sent.drafts.nodes or (None,)
    return msgspec.structs.replace(sent, drafts=columns.drafts(node=node))


def decode_command_in_steps(
    message: bytes, *, piece_bytes: int = PIECE_BYTES
) -> Steps[tuple[Command, WriteRequest | None] | None]:
    """`decode_command_and_write` in steps; None if only that function can decode the body."""
    columns = _Columns(REFUSED_RECORDS)
    try:
        rest = yield from _each_piece(
            message, piece_bytes, lambda part: columns.add(decode_write(part).drafts)
        )
        command = decode_command(rest)
        if not isinstance(command, PublishCommand):
            raise Uncuttable
        sent = command.write
        _insist_on_place(sent.drafts)
    except (InvalidRequest, Uncuttable):
        return None
    return command, _with_all(sent, columns)


def decode_command_and_write(message: bytes) -> tuple[Command, WriteRequest | None]:
    """A command and, of a publish, what it writes."""
    command = decode_command(message)
    return command, command.write if isinstance(command, PublishCommand) else None


def decode_stage_in_steps(
    body: bytes, *, piece_bytes: int = PIECE_BYTES
) -> Steps[StageRequest | None]:
    """`decode_stage` in steps; None if only `decode_stage` itself can decode the body."""
    topics: list[str] = []
    columns = _Columns()

    def take(part: bytes) -> None:
        sent = decode_stage(part)
        columns.add(sent.drafts)
        topics.extend(sent.topics)

    try:
        rest = yield from _each_piece(body, piece_bytes, take)
        _insist_on_place(decode_stage(rest).drafts)
    except (InvalidRequest, Uncuttable):
        return None
    return StageRequest(topics, columns.drafts())

"""Reading and deleting records of a topic."""

from __future__ import annotations

from functools import lru_cache

from msgspec import UNSET, UnsetType

from topics.errors import InvalidRequest
from topics.wire.decoding import BodyDecoder
from topics.wire.numbers import U32, U64, Body
from topics.wire.predicates import Match, Predicate, parse_match

Nodes = str | list[str]
"""Whose records to leave out: one node or several."""


class DiffBody(Body):
    """A read after a cursor, or from a time."""

    from_seq: U64 | UnsetType = UNSET
    limit: U32 = 256
    node: Nodes | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U32 = 0
    max_batch_bytes: U64 = 0
    from_ts: U64 | None = None
    match: Match | None = None

    @property
    def cursor(self) -> int:
        """The last seq already read; without meaning when `from_ts` is given."""
        return 0 if self.from_seq is UNSET else self.from_seq

    @property
    def nodes(self) -> tuple[str, ...]:
        return node_names(self.node)

    @property
    def predicate(self) -> Predicate | None:
        return None if self.match is None else parse_match(self.match)


class DeleteBody(Body):
    """Which records to delete: those below a seq, those of a tag, those named; several of these
    together reach only what all of them reach."""

    before_seq: U64 | None = None
    match: Match | None = None
    seqs: list[U64] | None = None

    @property
    def predicate(self) -> Predicate | None:
        return None if self.match is None else parse_match(self.match)


class EraseBody(Body):
    """Which records to erase: those below a seq, those of a tag; with both, what both reach."""

    before_seq: U64 | None = None
    match: Match | None = None

    @property
    def predicate(self) -> Predicate | None:
        return None if self.match is None else parse_match(self.match)


_diff = BodyDecoder(DiffBody)
_erase = BodyDecoder(EraseBody)
_delete = BodyDecoder(DeleteBody)
_KNOWN_BODIES = 256
_KNOWN_BYTES = 256


def decode_diff(body: bytes) -> DiffBody:
    """An empty body reads from the beginning, like `{}`. The result is shared: do not change it."""
    return _decode_known(body) if len(body) <= _KNOWN_BYTES else _decode_diff(body)


def _decode_diff(body: bytes) -> DiffBody:
    sent = _diff.decode(body or b"{}")
    refuse_two_starts(sent.from_ts, from_seq=sent.from_seq)
    check_match(sent.match)
    return sent


# Readers that wait for news, or walk the same pages, ask in the same words again.
_decode_known = lru_cache(maxsize=_KNOWN_BODIES)(_decode_diff)


def decode_delete(body: bytes) -> DeleteBody:
    sent = _delete.decode(body)
    if sent.before_seq is None and sent.match is None and sent.seqs is None:
        raise InvalidRequest("name the records to delete: send before_seq, match, seqs or several")
    check_match(sent.match)
    return sent


def decode_erase(body: bytes) -> EraseBody:
    sent = _erase.decode(body)
    if sent.before_seq is None and sent.match is None:
        raise InvalidRequest("name the records to erase: send before_seq, match, or both")
    check_match(sent.match)
    return sent


def check_match(match: Match | None) -> None:
    """Refuse a bad selector at once, before anything is looked up."""
    if match is not None:
        parse_match(match)


def node_names(node: Nodes | None) -> tuple[str, ...]:
    """The nodes of a filter, whichever way they were sent."""
    if node is None:
        return ()
    return (node,) if isinstance(node, str) else tuple(node)


def refuse_two_starts(
    from_ts: int | None,
    *,
    from_seq: int | UnsetType = UNSET,
    tail: bool | UnsetType = UNSET,
    topic: str | None = None,
) -> None:
    """A read begins at a time or at a place; raise when both are given."""
    if from_ts is None:
        return
    for name, value in (("from_seq", from_seq), ("tail", tail)):
        if value is not UNSET:
            where = "" if topic is None else f' for topic "{topic}"'
            raise InvalidRequest(f"from_ts and {name} exclude each other{where}; send one of them")

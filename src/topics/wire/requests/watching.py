"""Following topics: the body that opens a watch, and the commands of a WebSocket.

A bad command is answered on a socket that stays open. Two kinds of bad differ there: what
`decode_command` refuses could not be read, so nothing of it can be echoed; what `starts`, `names`
or `predicate` refuse was read but cannot be done. A misspelt field is of the second kind although
`decode_command` refuses it: `request_id_of` finds the id to echo.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from topics.errors import InvalidRequest
from topics.wire.decoding import BodyDecoder, refuse_excess
from topics.wire.jsonbytes import LONG_BYTES
from topics.wire.numbers import U32, U64, Body
from topics.wire.predicates import Match, Predicate, parse_match
from topics.wire.requests.reading import Nodes, check_match, node_names, refuse_two_starts
from topics.wire.requests.writing import WriteBody, WriteRequest, drafts_of, understood
from topics.wire.words import Consistency


class Start(msgspec.Struct, frozen=True):
    """Where to begin in a topic: after a seq, at the head, or at a time."""

    cursor: int = 0
    tail: bool = False
    from_ts: int | None = None


class StartBody(Body):
    """Where to begin in one topic, as sent."""

    from_seq: U64 | UnsetType = UNSET
    tail: bool | UnsetType = UNSET
    from_ts: U64 | None = None

    def start(self, topic: str) -> Start:
        refuse_two_starts(self.from_ts, from_seq=self.from_seq, tail=self.tail, topic=topic)
        cursor = 0 if self.from_seq is UNSET else self.from_seq
        return Start(cursor, self.tail is True, self.from_ts)


class WatchBody(Body):
    """Topics to follow and how. Of a topic named twice the last entry counts."""

    topics: dict[str, StartBody]
    node: Nodes | None = None
    limit: U32 = 256
    max_batch_bytes: U64 = 262_144
    heartbeat_ms: U64 = 15_000
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Consistency = "eventual"
    match: Match | None = None

    @property
    def starts(self) -> dict[str, Start]:
        return {topic: entry.start(topic) for topic, entry in self.topics.items()}

    @property
    def nodes(self) -> tuple[str, ...]:
        return node_names(self.node)

    @property
    def predicate(self) -> Predicate | None:
        return None if self.match is None else parse_match(self.match)


class SubscribeCommand(Body, tag_field="op", tag="subscribe"):
    """Follow one topic, several, or both; an entry of the map wins over the single topic."""

    request_id: Raw | UnsetType = UNSET
    topic: str | None = None
    from_seq: U64 | UnsetType = UNSET
    tail: bool | UnsetType = UNSET
    from_ts: U64 | None = None
    topics: dict[str, StartBody] = field(default_factory=dict)
    node: Nodes | None = None
    limit: U32 = 1000
    max_batch_bytes: U64 = 1_048_576
    include_data: bool = True
    include_tags: bool = False
    include_meta: bool = True
    lenient: bool = False

    @property
    def starts(self) -> dict[str, Start]:
        """Each topic and where to begin; raises `InvalidRequest` when there is none."""
        entries = dict(self.topics)
        if self.topic is not None and self.topic not in entries:
            entries[self.topic] = StartBody(
                from_seq=self.from_seq, tail=self.tail, from_ts=self.from_ts
            )
        if not entries:
            raise InvalidRequest("nothing to subscribe to; send topic, topics or both")
        return {topic: entry.start(topic) for topic, entry in entries.items()}

    @property
    def nodes(self) -> tuple[str, ...]:
        return node_names(self.node)


class UnsubscribeCommand(Body, tag_field="op", tag="unsubscribe"):
    """Stop following topics; names never followed are fine."""

    request_id: Raw | UnsetType = UNSET
    topic: str | None = None
    topics: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Each topic once, in the order sent; raises `InvalidRequest` when there is none."""
        first = [] if self.topic is None else [self.topic]
        found = list(dict.fromkeys(first + self.topics))
        if not found:
            raise InvalidRequest("nothing to unsubscribe from; send topic, topics or both")
        return found


class PublishCommand(WriteBody, kw_only=True, tag_field="op", tag="publish"):
    """A write over the socket."""

    request_id: Raw | UnsetType = UNSET
    topic: str
    return_seqs: bool = True

    @property
    def write(self) -> WriteRequest:
        return understood(self, drafts_of(self.records, node=self.node))


class PingCommand(Body, tag_field="op", tag="ping"):
    """Ask for an answer, to learn that the server is there."""

    request_id: Raw | UnsetType = UNSET


Command = SubscribeCommand | UnsubscribeCommand | PublishCommand | PingCommand
COMMANDS = (SubscribeCommand, UnsubscribeCommand, PublishCommand, PingCommand)

_watch = BodyDecoder(WatchBody)
_command = BodyDecoder[Command](*COMMANDS)


def decode_watch(body: bytes) -> WatchBody:
    sent = _watch.decode(body)
    check_match(sent.match)
    for topic, entry in sent.topics.items():
        entry.start(topic)
    return sent


def decode_command(message: str | bytes) -> Command:
    """One text message of a socket; `request_id` is kept as it was spelled."""
    text = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
    if len(text) > LONG_BYTES and not _carries_payload(text):
        refuse_excess(text)
    return _command.decode(text)


class _Op(msgspec.Struct):
    op: str = ""
    request_id: Raw | UnsetType = UNSET


_peek = msgspec.json.Decoder(_Op).decode


def request_id_of(message: bytes) -> Raw | UnsetType:
    """The id of a command that was refused for a misspelt field, as it was spelled."""
    try:
        return _peek(message).request_id
    except (msgspec.MsgspecError, RecursionError):
        return UNSET


def _carries_payload(text: bytes) -> bool:
    """Whether a command has records; an unreadable command counts as one that has."""
    try:
        return _peek(text).op == "publish"
    except (msgspec.MsgspecError, RecursionError):
        return True

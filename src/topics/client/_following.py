"""A live read, without I/O: what to ask for, what frames mean, where it stands.

A `Following` knows, for each topic, the last seq that was handed on. Every connection begins
there, in a fresh session of the server, so it does not matter what the server still remembers: a
restart, a half-open connection and a graceful end are one case. Records at or below the position
are dropped, so nothing comes twice; a frame moves the position only after its records were taken,
so nothing is skipped.

Frames come from an event stream (`SseFrames`) or a WebSocket (`_socket`) as `StreamFrame`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from topics.client import _routes as routes
from topics.client._call import ApiCall
from topics.client._calls import filters, record_of
from topics.client._routes import ParsedRecord, ParsedStreamStart
from topics.errors import InvalidRequest, TopicNotFound, from_wire
from topics.events import Arrived, CaughtUp, Event, Lost, TopicDropped
from topics.values import Tombstone, TombstoneReason
from topics.wire.cursors import parse_stream_id
from topics.wire.jsonbytes import encode

FRAME_RECORDS = 1000
FRAME_BYTES = 1 << 20

Starts = Iterable[str] | Mapping[str, int | None]
"""Topics and the seq each is read after; None begins at the head, a bare name at the beginning."""


class StreamFrame(Struct):
    """One message of a stream, event stream or WebSocket, with the fields it has."""

    op: str = ""
    topic: str = ""
    records: list[ParsedRecord] = []
    to_seq: int = 0
    head_seq: int = 0
    reason: str = ""
    gap_from: int = 0
    gap_to: int = 0
    earliest_seq: int = 0
    code: int | str = ""
    message: str = ""
    place: str = ""
    topics: dict[str, _Begun] = {}


class _Begun(Struct):
    from_seq: int


_decode = msgspec.json.Decoder(StreamFrame).decode


def decode_message(text: str | bytes) -> StreamFrame:
    """A message of a WebSocket."""
    return _decode(text)


class SseFrames:
    """Bytes of an event stream in, frames out."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> list[StreamFrame]:
        *whole, self._left = (self._left + data).split(b"\n\n")
        return [frame for text in whole if (frame := _sse_frame(text)) is not None]


def _sse_frame(text: bytes) -> StreamFrame | None:
    """None for a comment (a heartbeat) and for advice on when to reconnect."""
    fields: dict[bytes, bytes] = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        fields[name] = value
    if b"data" not in fields:
        return None
    frame = _decode(fields[b"data"])
    frame.op = fields.get(b"event", b"").decode().replace("-", "_")
    frame.place = fields.get(b"id", b"").decode()
    return frame


class StreamEnded(Exception):
    """The server ended the stream in good order; a new one goes on where it stopped."""


class Following:
    """Where a live read stands in each topic."""

    def __init__(
        self,
        topics: Starts,
        *,
        node: str | Sequence[str],
        match: str | Sequence[str] | None,
        limit: int,
        heartbeat_ms: int,
    ) -> None:
        if isinstance(topics, Mapping):
            starts = dict(topics)
        else:
            starts = dict.fromkeys((topics,) if isinstance(topics, str) else topics, 0)
        if not starts:
            raise InvalidRequest("name at least one topic to watch")
        for topic, after in starts.items():
            if after is not None and after < 0:
                raise InvalidRequest(f"after must be 0 or more, not {after}")
            if not topic:
                raise TopicNotFound(topic)
        self.positions: dict[str, int | None] = starts
        self._filters = filters(node, match)
        self._limit = min(limit, FRAME_RECORDS) if limit else FRAME_RECORDS
        self._heartbeat_ms = heartbeat_ms
        self._was_open = False
        self._absent: list[str] = []
        self._behind = set(starts)

    # Beginning

    def session_call(self) -> ApiCall[str]:
        """Asks for an event stream from here on; the answer is its path.

        The first time an absent topic is an error. Later it is news: it was dropped meanwhile.
        """
        body = {
            "topics": self._entries(),
            "limit": self._limit,
            "max_batch_bytes": FRAME_BYTES,
            "heartbeat_ms": self._heartbeat_ms,
            "include_tags": True,
            **self._filters,
        }

        def parse(answer: bytes) -> str:
            session = routes.CREATE_WATCH.parse(answer)
            self._begin(session.topics)
            return session.stream_url

        query = {"lenient": "true"} if self._was_open else None
        return ApiCall(*routes.CREATE_WATCH.at(), parse, encode(body), query=query, idempotent=True)

    def subscription(self) -> bytes:
        """The same for a WebSocket; `StreamFrame.op` "subscribed" answers it."""
        if "match" in self._filters:
            raise InvalidRequest('a WebSocket cannot match tags; leave out transport="ws"')
        self._behind = set(self.positions)
        command = {
            "op": "subscribe",
            "topics": self._entries(),
            "limit": self._limit,
            "max_batch_bytes": FRAME_BYTES,
            "include_tags": True,
            "lenient": self._was_open,
            **self._filters,
        }
        return encode(command)

    def _entries(self) -> dict[str, dict[str, Any]]:
        return {
            topic: {"tail": True} if after is None else {"from_seq": after}
            for topic, after in self.positions.items()
        }

    def _begin(self, begun: Mapping[str, ParsedStreamStart | _Begun]) -> None:
        for topic, start in begun.items():
            if self.positions.get(topic, 0) is None:
                self.positions[topic] = start.from_seq
        self._absent = [topic for topic in self.positions if topic not in begun]
        self._was_open = True
        self._behind = set(begun)

    def departed(self) -> Iterator[TopicDropped]:
        """Topics that were dropped while there was no connection."""
        for topic in self._absent:
            del self.positions[topic]
            yield TopicDropped(topic)
        self._absent = []

    @property
    def is_over(self) -> bool:
        """Whether no topic is left to follow."""
        return not self.positions

    @property
    def is_settled(self) -> bool:
        """Whether everything there was has been handed on."""
        return not self._behind

    def places(self) -> dict[str, int]:
        """By topic the seq after which reading goes on, for events."""
        return {topic: after or 0 for topic, after in self.positions.items()}

    # Frames

    def take(self, frame: StreamFrame) -> Iterator[Event]:
        """What a frame says. Raises `StreamEnded`, or the error that ends the whole read."""
        topic = frame.topic
        if frame.op == "error":
            _judge(frame)
        elif frame.op == "subscribed":
            self._begin(frame.topics)
            yield from self.departed()
        elif topic not in self.positions:
            return
        elif frame.op == "record":
            yield from self._records(frame)
        elif frame.op == "caught_up":
            self._behind.discard(topic)
            yield CaughtUp(topic, frame.head_seq)
        elif frame.op == "tombstone":
            yield Lost(topic, _tombstone(frame))
            self.positions[topic] = _behind(frame)
        elif frame.op == "topic_deleted":
            del self.positions[topic]
            self._behind.discard(topic)
            yield TopicDropped(topic)

    def _records(self, frame: StreamFrame) -> Iterator[Event]:
        for record in frame.records:
            if record.seq > (self.positions[frame.topic] or 0):
                yield Arrived(frame.topic, record_of(record))
                # Moved one by one: a reader that stops in the middle continues there.
                self.positions[frame.topic] = record.seq
        self.positions[frame.topic] = max(self.positions[frame.topic] or 0, frame.to_seq)


def is_vague(event: Event) -> bool:
    """Whether a tombstone says only that the reader came too late, not what took the records."""
    return isinstance(event, Lost) and event.tombstone.reason == "from_seq_too_old"


def with_reason(event: Lost, known: Tombstone | None) -> Lost:
    """The same loss with the reason that an ordinary read of the place gives."""
    reason: TombstoneReason = event.tombstone.reason if known is None else known.reason
    return Lost(event.topic, msgspec.structs.replace(event.tombstone, reason=reason))


def _tombstone(frame: StreamFrame) -> Tombstone:
    reason: Any = frame.reason
    return Tombstone(frame.gap_from, frame.gap_to, reason, frame.earliest_seq, frame.head_seq)


def _behind(frame: StreamFrame) -> int:
    """The position after a tombstone: an event stream says it, a WebSocket implies it."""
    places = parse_stream_id(frame.place) if frame.place else None
    if places is not None and frame.topic in places:
        return places[frame.topic]
    return frame.earliest_seq - 1 if frame.reason == "recreated" else frame.gap_to


def _judge(frame: StreamFrame) -> None:
    if frame.code == 429:
        return  # advice: the server is busy or we are slow; the stream goes on
    if frame.code in (410, "server_shutting_down"):
        raise StreamEnded(frame.message)
    raise from_wire(str(frame.code), frame.message)

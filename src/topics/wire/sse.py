"""Server-sent events: every frame a watch or a work stream can carry.

A frame is lines of `name: value` in the order id, event, data, closed by an empty line. Stored
payloads are compact JSON, which cannot hold a raw line break, so one data line always suffices.
`stream` is the id of `cursors.stream_id`, the place a client resumes from.
"""

from typing import Literal

import msgspec
from msgspec.structs import astuple

from topics.values import Job, Tombstone
from topics.wire.responses import job_members

RETRY_MS = 2000
THROTTLED_RETRY_AFTER_MS = 1000

RETRY = b"retry: %d\n\n" % RETRY_MS
"""The first frame of every stream: how long to wait before connecting again."""

ThrottleReason = Literal["slow_consumer", "pressure"]
GoneReason = Literal["superseded", "no_topics"]

_THROTTLED: dict[ThrottleReason, str] = {
    "slow_consumer": "the reader was too slow and fell behind; it continues where it stopped",
    "pressure": "the server is busy and holds records back; they stay stored and readable",
}
_GONE: dict[GoneReason, str] = {
    "superseded": "another connection has taken over this watch; close this one",
    "no_topics": "none of the watched topics is left; create a new watch",
}
_SHUTDOWN = "the server is shutting down; connect again once it is back"

_encode = msgspec.json.Encoder().encode


def frame(event: str, data: bytes, *, stream: str | None = None) -> bytes:
    """One event; without `stream` the client's place stays as it is."""
    place = b"" if stream is None else b"id: %b\n" % stream.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (place, event.encode(), data)


def heartbeat(now_ms: int) -> bytes:
    """A comment, to show that the connection lives."""
    return b": hb %d\n\n" % now_ms


def records(
    topic: str, rendered: bytes, *, stream: str, from_seq: int, to_seq: int, head_seq: int
) -> bytes:
    """Records of one read, after `from_seq` up to `to_seq`, some of which may be left out."""
    data = b'{"topic":%b,"from_seq":%d,"head_seq":%d,"records":%b,"to_seq":%d}' % (
        _encode(topic),
        from_seq,
        head_seq,
        rendered,
        to_seq,
    )
    return frame("record", data, stream=stream)


def caught_up(topic: str, *, stream: str, head_seq: int) -> bytes:
    """The reader has everything there is for now."""
    return frame("caught-up", _encode({"topic": topic, "head_seq": head_seq}), stream=stream)


def tombstone(topic: str, lost: Tombstone, *, stream: str, first_read: bool = False) -> bytes:
    """Records were lost. On a topic's first read the reader simply asked for too old a place."""
    shown = {
        "topic": topic,
        "reason": "from_seq_too_old" if first_read else lost.reason,
        "gap_from": lost.gap_from,
        "gap_to": lost.gap_to,
        "earliest_seq": lost.earliest_seq,
        "head_seq": lost.head_seq,
    }
    return frame("tombstone", _encode(shown), stream=stream)


def topic_deleted(topic: str, *, stream: str) -> bytes:
    """The topic is gone; nothing more of it follows."""
    shown = {"topic": topic, "head_seq": 0, "reason": "deleted"}
    return frame("topic-deleted", _encode(shown), stream=stream)


def throttled(reason: ThrottleReason, *, stream: str, topic: str | None = None) -> bytes:
    """A notice only: the stream goes on."""
    shown: dict[str, object] = {"code": 429, "message": _THROTTLED[reason], "reason": reason}
    if topic is not None:
        shown["topic"] = topic
    shown["retry_after_ms"] = THROTTLED_RETRY_AFTER_MS
    return frame("error", _encode(shown), stream=stream)


def gone(reason: GoneReason, *, stream: str) -> bytes:
    """The stream ends and need not be opened again."""
    shown = {"code": 410, "message": _GONE[reason], "reason": reason}
    return frame("error", _encode(shown), stream=stream)


def shutting_down(*, stream: str) -> bytes:
    """The stream ends; its place can be resumed later."""
    shown = {"code": "server_shutting_down", "message": _SHUTDOWN}
    return frame("error", _encode(shown), stream=stream)


# Work streams. Their errors have no id: a worker resumes nothing, its leases are released.


def job(topic: str, leased: Job) -> bytes:
    data = b'{"topic":%b,%b}' % (_encode(topic), job_members(astuple(leased)))
    return frame("job", data, stream=str(leased.seq))


def work_topic_gone(topic: str) -> bytes:
    """The queue was dropped; the stream ends."""
    shown = {"code": 409, "error": "the queue was deleted", "topic": topic}
    return frame("error", _encode(shown))


def work_shutting_down(topic: str) -> bytes:
    """The stream ends; its leases are released."""
    shown = {"code": "server_shutting_down", "error": _SHUTDOWN, "topic": topic}
    return frame("error", _encode(shown))

"""WebSocket messages from server to client, one JSON object each.

Words are joined by underscores here (`caught_up`), where event streams use hyphens. A reply
carries the `request_id` of its command as it was spelled, `null` when there was none.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from topics.errors import HeadMismatch, MisspeltField, Throttled, TopicsError
from topics.values import Ack, Tombstone
from topics.wire.responses import ack_members, message_of
from topics.wire.shapes import StreamStart

RequestId = Raw | UnsetType
"""As a decoded command has it."""

_encode = msgspec.json.Encoder().encode


def _reply(op: str, request_id: RequestId, members: bytes = b"") -> bytes:
    spelled = b"null" if request_id is UNSET else bytes(request_id)
    return b'{"op":"%b","request_id":%b%b}' % (op.encode(), spelled, members)


def subscribed(request_id: RequestId, topics: Mapping[str, StreamStart]) -> bytes:
    """Sent before the first message of the subscription."""
    return _reply("subscribed", request_id, b',"topics":%b' % _encode(topics))


def unsubscribed(request_id: RequestId, topics: Sequence[str]) -> bytes:
    """Nothing more of these topics follows."""
    return _reply("unsubscribed", request_id, b',"topics":%b' % _encode(topics))


def ack(request_id: RequestId, done: Ack, spent: bytes, *, return_seqs: bool = True) -> bytes:
    """A write was taken. `seqs` is null, not absent, when the caller declined them."""
    members = ack_members(done, spent, return_seqs=return_seqs, declined=b'"seqs":null,')
    return _reply("ack", request_id, b"," + members)


def pong(request_id: RequestId) -> bytes:
    return _reply("pong", request_id)


def records(topic: str, rendered: bytes, *, from_seq: int, to_seq: int, head_seq: int) -> bytes:
    """Records of one read, after `from_seq` up to `to_seq`, some of which may be left out."""
    return b'{"op":"record","topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":%b}' % (
        _encode(topic),
        from_seq,
        to_seq,
        head_seq,
        rendered,
    )


def caught_up(topic: str, *, head_seq: int) -> bytes:
    """The reader has everything there is for now."""
    return _encode({"op": "caught_up", "topic": topic, "head_seq": head_seq})


def tombstone(topic: str, lost: Tombstone) -> bytes:
    """Records were lost, always with the real reason."""
    return _encode(
        {
            "op": "tombstone",
            "topic": topic,
            "reason": lost.reason,
            "gap_from": lost.gap_from,
            "gap_to": lost.gap_to,
            "earliest_seq": lost.earliest_seq,
            "head_seq": lost.head_seq,
        }
    )


def topic_deleted(topic: str) -> bytes:
    """The topic is gone, and the subscription with it."""
    return _encode({"op": "topic_deleted", "topic": topic, "head_seq": 0, "reason": "deleted"})


# Errors. The socket stays open after those of a command.


def command_failed(request_id: RequestId, error: TopicsError) -> bytes:
    """A command that was understood but refused."""
    members: dict[str, object] = {"code": error.code, "message": message_of(error)}
    if isinstance(error, Throttled):
        members["retry_after_ms"] = error.retry_after_ms
    elif isinstance(error, HeadMismatch) and error.detail is not None:
        members["head_seq"] = error.detail["head_seq"]
    elif isinstance(error, MisspeltField):
        members["detail"] = error.detail
    return _reply("error", request_id, b",%b" % _encode(members)[1:-1])


def unreadable_command(error: TopicsError) -> bytes:
    """A message that is no command; whatever id it carried is unknown."""
    members = {"code": "invalid_json", "message": message_of(error)}
    return _reply("error", UNSET, b",%b" % _encode(members)[1:-1])


def unsupported_message() -> bytes:
    """A binary frame came; commands are text."""
    return _notice("unsupported_message", "binary frames are not supported; send JSON as text")


def shutting_down() -> bytes:
    return _notice(
        "server_shutting_down", "the server is shutting down; connect again once it is back"
    )


def _notice(code: str, message: str) -> bytes:
    return _encode({"op": "error", "code": code, "message": message})

"""Opaque cursors: the place in a list, and the places of a stream in its topics.

Both are JSON in base64url without padding. Clients only hand them back, so the inside may
change; what they hand back is read generously (either alphabet, padded or not).
"""

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Mapping

import msgspec

from topics.errors import InvalidRequest
from topics.topic_settings import U64_MAX
from topics.wire.jsonbytes import compact
from topics.wire.numbers import U64

_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")
_URL_ALPHABET = bytes.maketrans(b"+/", b"-_")


class _ListCursor(msgspec.Struct):
    after: str


_encode = msgspec.json.Encoder(order="sorted").encode
_decode_after = msgspec.json.Decoder(_ListCursor).decode
_decode_positions = msgspec.json.Decoder(dict[str, U64]).decode


def list_cursor(after: str) -> str:
    """The cursor that continues a list behind the name `after`."""
    return _pack({"after": after})


def parse_list_cursor(text: str) -> str | None:
    """The name to continue after; None to begin. Raises `InvalidRequest` for a bad cursor."""
    if not text:
        return None
    try:
        raw = compact(_unpack(text))
    except (ValueError, InvalidRequest) as error:
        raise InvalidRequest(
            "cursor is not one this server gave out; pass next_cursor unchanged, or none"
        ) from error
    try:
        return _decode_after(raw).after
    except msgspec.ValidationError:
        return None


def stream_id(positions: Mapping[str, int]) -> str:
    """Where a stream stands in each of its topics, as the id of an event."""
    return _pack(positions)


def parse_stream_id(text: str) -> dict[str, int] | None:
    """The positions a client says it has reached; None when the id says nothing."""
    try:
        positions = _decode_positions(_unpack(text))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return None if any(seq > U64_MAX for seq in positions.values()) else positions


def _pack(value: object) -> str:
    packed = b2a_base64(_encode(value), newline=False)
    return packed.translate(_URL_ALPHABET).decode().rstrip("=")


def _unpack(text: str) -> bytes:
    """Raises `ValueError` (`binascii.Error` is one) for what is not base64."""
    packed = text.encode("ascii").translate(_STANDARD_ALPHABET).rstrip(b"=")
    return b64decode(packed + b"=" * (-len(packed) % 4), validate=True)

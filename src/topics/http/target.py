"""What a request line's target names: a path of decoded segments, and a query.

Paths are percent-decoded once, segment by segment, so an encoded slash stays inside its segment.
"""

from functools import lru_cache
from urllib.parse import unquote_to_bytes

from topics.errors import InvalidRequest

_CACHED_PATH_BYTES = 512
"""Longer paths are decoded each time, so that the cache stays small."""


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """The path and the query of a request target, both still encoded.

    An absolute target (`http://host/path`), which proxies send, loses its authority.
    """
    if target[:1] != b"/" and b"://" in target:
        _, _, rest = target.partition(b"://")
        _, slash, path = rest.partition(b"/")
        target = slash + path if slash else b"/"
    if b"?" not in target:
        return target, b""
    path, _, query = target.partition(b"?")
    return path, query


def segments_of(path: bytes) -> tuple[str, ...]:
    """The decoded names between the slashes; a trailing slash gives a last empty one."""
    if len(path) <= _CACHED_PATH_BYTES:
        return _cached_segments(path)
    return _decode_segments(path)


def _decode_segments(path: bytes) -> tuple[str, ...]:
    try:
        text = path.removeprefix(b"/")
        if b"%" not in text:
            return tuple(text.decode().split("/"))
        return tuple(unquote_to_bytes(part).decode() for part in text.split(b"/"))
    except UnicodeDecodeError as error:
        raise InvalidRequest("the path is not valid UTF-8 once percent-decoded") from error


_cached_segments = lru_cache(maxsize=4096)(_decode_segments)

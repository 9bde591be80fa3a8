r"""User values as stored JSON bytes.

`data` and `meta` are kept as text and never as Python objects: what a writer spelled
(`1e2`, `-0.0`, forty-digit integers, escapes, key order, repeated keys) is what every reader
gets. Only whitespace outside strings goes, so that stored bytes fit on one line of a stream.

Stored bytes are spliced into every later response, hence whatever passes here must be
strictly valid. The parser does most of that; what it leaves open is checked here:

    rule                                      checked by
    grammar, raw control characters, BOM,     msgspec, which skims a `Raw` value by the
    NaN, lone surrogate escapes               same rules as one it builds
    UTF-8                                     decoding; `Raw` is not decoded by msgspec
    nesting                                   counting brackets outside strings
    NaN and Infinity given as Python floats   a look at the value; msgspec writes null

`bytes.find` is used where `in` reads better: `in` first tries its operand as an integer,
which costs more than the search itself on small values.
"""

import contextlib
import math
import re
import struct
from array import array
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import accumulate, product
from typing import Any

import msgspec

from topics.errors import InvalidRequest

MAX_DEPTH = 127
"""Levels of arrays and objects a JSON text may nest."""

_skim = msgspec.json.Decoder(msgspec.Raw).decode
_key = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_encode_binary = msgspec.msgpack.Encoder().encode

_tokens = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)

# Brackets as signed bytes: an opening one is +1, a closing one -1.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
LONG_BYTES = 1 << 20
"""A longer text could hold so many parts that looking at each would delay other requests."""
_MANY_BRACKETS = 100_000
"""Brackets from which on counting them one by one would take milliseconds."""
_UP_AND_DOWN = b"\x01\xff"
_MOST_ROUNDS = 4
_STRIDE = 8
"""Brackets that are counted together; there are two to this power of strides."""
_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[{]}"'))

# A float in MessagePack whose exponent bits are all set.
_non_finite_float = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search


def encode(value: object, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Any JSON-serialisable object as the bytes to store.

    Dates, UUIDs, dataclasses and the like are written as msgspec writes them; `bytes`
    become base64 text. Ready JSON belongs to `compact`.
    """
    try:
        raw = _encode(value)
    except RecursionError as error:
        raise _too_deep(max_depth) from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "a string holds a lone surrogate, which UTF-8 cannot carry; replace it"
        ) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"the value cannot be written as JSON ({error}); "
            "convert it to dicts, lists, strings, numbers, booleans or None"
        ) from error
    if raw.find(b"null") >= 0 and _has_non_finite(value):
        raise InvalidRequest(
            "JSON has no NaN or Infinity; send None, a string or a finite number instead"
        )
    # A `Raw` inside the value was copied unread, so the result is judged like any text.
    return compact(raw, max_depth)


def encode_all(values: list[Any], *, max_depth: int = MAX_DEPTH) -> list[bytes]:
    """`encode` of each value, for a third of the price when there are many."""
    try:
        text = _encode_lines(values)
    except (RecursionError, TypeError, ValueError, OverflowError):
        return [encode(value, max_depth=max_depth) for value in values]
    lines = text.split(b"\n")
    lines.pop()
    # One line too many comes from a `Raw` with line breaks; a `null` may be a NaN.
    if len(lines) != len(values) or (text.find(b"null") >= 0 and _has_non_finite(values)):
        return [encode(value, max_depth=max_depth) for value in values]
    return compact_all(lines, max_depth)


def _has_non_finite(value: object) -> bool:
    # Records with a plain None come here too, so most are cleared without a walk:
    # MessagePack keeps floats as they are, where a search can see them.
    with contextlib.suppress(OverflowError):
        if not _non_finite_float(_encode_binary(value)):
            return False
    return any(not math.isfinite(number) for number in _floats(value))


def _floats(value: object) -> Iterator[float]:
    left = [msgspec.to_builtins(value, str_keys=True, enc_hook=_skip)]
    while left:
        part = left.pop()
        if isinstance(part, float):
            yield part
        elif isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, (list, tuple)):
            left.extend(part)


def _skip(_raw: object) -> None:
    """`Raw` is the one thing that can be encoded but not taken apart; it holds no floats."""


def compact(raw: bytes | bytearray | memoryview, max_depth: int = MAX_DEPTH) -> bytes:
    """Ready JSON, checked strictly, less the whitespace outside strings.

    Returns `raw` itself when it is `bytes` with nothing to remove. `max_depth` is lower
    where the value sits inside other containers.
    """
    if type(raw) is not bytes:
        raw = bytes(raw)
    # Shorter texts have no room to open and close that many brackets.
    if len(raw) > 2 * max_depth and is_deeper(raw, max_depth):
        raise _too_deep(max_depth)
    try:
        _skim(raw)
        if not raw.isascii():
            raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the JSON is not valid UTF-8 at byte {error.start}") from error
    except msgspec.DecodeError as error:
        flaw = str(error).removeprefix("JSON is malformed: ")
        raise InvalidRequest(f"the JSON is malformed: {flaw}") from error
    return raw if raw.split(None, 1)[0] == raw else _tighten(raw)


def compact_all(raws: list[Any], max_depth: int = MAX_DEPTH) -> list[bytes]:
    """`compact` of each text, checking as much as possible of all of them at once."""
    texts: list[bytes] = [raw if type(raw) is bytes else bytes(raw) for raw in raws]
    if not texts:
        return texts
    if max(map(len, texts)) > 2 * max_depth and any(is_deeper(raw, max_depth) for raw in texts):
        raise _too_deep(max_depth)
    try:
        for _ in map(_skim, texts):
            pass
        joined = b"".join(texts)
        if not joined.isascii():
            joined.decode()  # texts begin and end in ASCII, so no character spans two of them
    except (UnicodeDecodeError, msgspec.DecodeError):
        return [compact(raw, max_depth) for raw in texts]  # raises, for the first that is wrong
    if joined.split(None, 1)[0] == joined:
        return texts
    return [_tighten(raw) for raw in texts]


def _tighten(raw: bytes) -> bytes:
    tight: bytes = msgspec.json.format(raw, indent=-1)
    return raw if tight == raw else tight


def is_deeper(raw: bytes, max_depth: int) -> bool:
    """Whether containers nest deeper than `max_depth`.

    Runs before the text is known to be valid. Up to its first error malformed text nests
    here exactly as it does for the parser, so the parser cannot run out of stack later.
    """
    if raw.count(b"[") + raw.count(b"{") <= max_depth:
        return False
    if raw.find(b"\\") >= 0:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side are an empty string or the border of two strings: without
    # them every bracket is still inside or outside strings as before.
    marks = raw.translate(None, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b"")
    outside = b"".join(marks.split(b'"')[::2])
    steps = outside.translate(_STEPS)
    if len(steps) > _MANY_BRACKETS:
        return not _is_flat(steps, max_depth) and _climbs_higher(steps, max_depth)
    return _height(steps) > max_depth


def _height(steps: bytes) -> int:
    return max(accumulate(array("b", steps)), default=0)


def _is_flat(steps: bytes, height: int) -> bool:
    """Whether many steps surely stay within `height`, told by few of them.

    Most containers hold no other. Leaving these out takes away the steps to them and at most one
    from the height, and so does leaving out what then holds no other.
    """
    for left_out in range(1, _MOST_ROUNDS + 1):
        steps = steps.replace(_UP_AND_DOWN, b"")
        if len(steps) <= _MANY_BRACKETS:
            return max(0, _height(steps)) + left_out <= height
    return False


def _climbs_higher(steps: bytes, height: int) -> bool:
    """Whether a sum of the first so many steps exceeds `height`, for millions of them.

    Eight steps at a time. numpy would be faster, but its import takes longer than most texts, on
    the loop, where all requests would wait for it.
    """
    known = _strides()
    rest = len(steps) % _STRIDE
    reached = 0
    for (stride,) in struct.iter_unpack(f"{_STRIDE}s", steps[: len(steps) - rest]):
        rise, peak = known[stride]
        if reached + peak > height:
            return True
        reached += rise
    return rest > 0 and reached + _height(steps[-rest:]) > height


@cache
def _strides() -> dict[bytes, tuple[int, int]]:
    """Where each possible stride ends, and the highest it comes to, relative to its start."""
    found = {}
    for steps in product(b"\x01\xff", repeat=_STRIDE):
        heights = list(accumulate(array("b", bytes(steps))))
        found[bytes(steps)] = (heights[-1], max(heights))
    return found


def _too_deep(max_depth: int) -> InvalidRequest:
    return InvalidRequest(
        f"the JSON nests deeper than {max_depth} levels (or refers to itself); flatten it"
    )


# Members of a stored object. These work on compact, valid JSON only, as `compact` returns it.


def member_count(raw: bytes) -> int | None:
    """How many members an object has, repeated keys included; None for other JSON."""
    if not raw.startswith(b"{"):
        return None
    return sum(1 for _ in _members(raw))


def has_more_members(raw: bytes, limit: int) -> bool:
    """Whether `raw` is an object with more than `limit` members; cheap for small ones."""
    # Every member needs a colon, so few colons settle it without a scan.
    if raw.count(b":") <= limit:
        return False
    return (member_count(raw) or 0) > limit


def splice_members(raw_meta: bytes, extra: Mapping[str, str] | bytes) -> bytes:
    """`raw_meta` with members added at its end; the bytes before them stay as they are.

    Keys are not compared: drop an earlier member first where it should be replaced.
    """
    added = extra if isinstance(extra, bytes) else _encode(extra)
    assert raw_meta.startswith(b"{"), "only an object can take members"
    assert added.startswith(b"{"), "members come as an object"
    if raw_meta == b"{}":
        return added
    if added == b"{}":
        return raw_meta
    return b"%b,%b" % (raw_meta[:-1], added[1:])


def drop_members(raw_meta: bytes, names: Collection[str]) -> bytes:
    """`raw_meta` without the members of these names, however their keys are escaped."""
    assert raw_meta.startswith(b"{"), "only an object has members"
    kept = [member for key, member in _members(raw_meta) if _key(key) not in names]
    return b"{%b}" % b",".join(kept)


def _members(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each member of an object as (key, whole member), both as spelled."""
    if raw == b"{}":
        return
    depth, start = 0, 1
    key: bytes | None = None
    for token in _tokens.finditer(raw):
        text = token.group()
        if text.startswith(b'"'):
            # The first string of a member is its key; a value always comes after it.
            key = text if key is None else key
        elif text in (b"{", b"["):
            depth += 1
        elif text != b",":
            depth -= 1
        if (depth == 1 and text == b",") or depth == 0:
            assert key is not None, "a member begins with its key"
            yield key, raw[start : token.start()]
            start, key = token.end(), None

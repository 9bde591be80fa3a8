import enum
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from topics.errors import InvalidRequest
from topics.wire.jsonbytes import (
    MAX_DEPTH,
    compact,
    drop_members,
    encode,
    has_more_members,
    member_count,
    splice_members,
)

BACKSLASH = b"\\"

MALFORMED = {
    "nothing": b"",
    "only whitespace": b" \n",
    "trailing characters": b"{}x",
    "a second value": b"1 2",
    "trailing comma": b"[1,]",
    "trailing comma in an object": b'{"a":1,}',
    "missing comma": b"[1 2]",
    "missing colon": b'{"a" 1}',
    "missing value": b'{"a":}',
    "unquoted key": b"{a:1}",
    "number as key": b"{1:2}",
    "single quotes": b"'a'",
    "comment": b"/*x*/1",
    "cut literal": b"tru",
    "literal with a tail": b"truex",
    "capital literal": b"True",
    "unterminated string": b'"abc',
    "unterminated array": b"[1",
    "unterminated object": b'{"a":1',
    "wrong closing bracket": b"[1}",
    "lone closing bracket": b"]",
    "leading zero": b"01",
    "negative leading zero": b"-01",
    "lone minus": b"-",
    "plus sign": b"+1",
    "no digit after the point": b"1.",
    "no digit before the point": b".5",
    "no digit in the exponent": b"1e",
    "hexadecimal": b"0x10",
    "unknown escape": b'"' + BACKSLASH + b'x"',
    "cut unicode escape": b'"' + BACKSLASH + b'u12"',
    "bad unicode escape": b'"' + BACKSLASH + b'u12g4"',
    "form feed as whitespace": b"\x0c1",
    "no-break space as whitespace": b"\xc2\xa01",
    "raw newline in a string": b'"a\nb"',
    "raw tab in a string": b'"a\tb"',
    "raw NUL in a string": b'"a\x00b"',
    "raw control character in a key": b'{"a\x01":1}',
    "byte order mark": b"\xef\xbb\xbf1",
    "stray UTF-8 byte": b'"\xff"',
    "cut UTF-8 sequence": b'"\xc3"',
    "overlong UTF-8": b'"\xc0\x80"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond Unicode in UTF-8": b'"\xf4\x90\x80\x80"',
    "bad UTF-8 in a key": b'{"\xff":1}',
    "bad UTF-8 outside strings": b"[\xff]",
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "-Infinity": b'{"a":-Infinity}',
    "lone high surrogate": b'"' + BACKSLASH + b'ud800"',
    "lone low surrogate": b'"' + BACKSLASH + b'udc00"',
    "high surrogate before a letter": b'"' + BACKSLASH + b"ud800" + BACKSLASH + b'u0041"',
    "surrogates in the wrong order": b'"' + BACKSLASH + b"udc00" + BACKSLASH + b'ud800"',
    "lone surrogate in a key": b'{"' + BACKSLASH + b'ud800":1}',
}

KEPT_AS_SPELLED = [
    b"null",
    b"true",
    b"0",
    b"-0",
    b"-0.0",
    b"1e2",
    b"1E+2",
    b"1.50",
    b"1e400",
    b"-1.5e999",
    b"123456789012345678901234567890123456789012345678901234567890",
    b"1" * 5000,
    b'""',
    b'"two words, and: more"',
    b'"' + BACKSLASH + b"u0041" + BACKSLASH + b'/"',
    b'"' + BACKSLASH + b"ud83d" + BACKSLASH + b'ude00"',
    b'"' + BACKSLASH + b'"' + BACKSLASH + BACKSLASH + b'"',
    b'"\x7f"',
    '"grüße 日本 😀 \uffff"'.encode(),
    b"{}",
    b"[]",
    b'{"b":1,"a":2}',
    b'{"a":1,"a":2}',
    b'{"":""}',
    b'[[],{},[{}],{"a":[]}]',
]


def nested(depth: int, *, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * depth + closing * depth


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_text_that_is_not_strict_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        compact(raw)


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_text_that_is_not_strict_json_is_refused_inside_a_value(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        compact(b'{"a":[{"b":' + raw + b"}]}")


@pytest.mark.parametrize("raw", KEPT_AS_SPELLED)
def test_compact_text_comes_back_as_the_same_object(raw: bytes) -> None:
    assert compact(raw) is raw


@pytest.mark.parametrize("raw", KEPT_AS_SPELLED)
def test_whitespace_around_a_value_goes_and_its_spelling_stays(raw: bytes) -> None:
    assert compact(b'\r\n\t {"a" : [ %b , 1 ] }\n' % raw) == b'{"a":[%b,1]}' % raw


def test_whitespace_inside_strings_stays() -> None:
    assert compact(b'{ " a  b " : " , : " }') == b'{" a  b ":" , : "}'


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_text_is_taken(kind: type) -> None:
    taken = compact(kind(b"[1, 2]"))
    assert taken == b"[1,2]"
    assert type(taken) is bytes


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":[', b"]}"), (b'[{"]}":', b"}]")]
)
def test_nesting_is_refused_beyond_the_limit_and_not_before(opening: bytes, closing: bytes) -> None:
    levels = len(opening.replace(b'"]}"', b"").translate(None, b'"a:'))
    fits = MAX_DEPTH // levels
    inner = nested(MAX_DEPTH - fits * levels) or b"1"
    allowed = opening * fits + inner + closing * fits
    assert compact(allowed) == allowed
    with pytest.raises(InvalidRequest, match="deeper"):
        compact(b"[" + allowed + b"]")


def test_very_deep_text_is_refused_without_a_crash() -> None:
    for raw in (nested(1_000_000), b"[" * 1_000_000, b'{"a":' * 300_000):
        with pytest.raises(InvalidRequest):
            compact(raw)


def test_brackets_in_strings_and_side_by_side_do_not_nest() -> None:
    wide = b"[" + b",".join([b'[{"[[{{":"' + BACKSLASH + b'"[[["}]'] * 1000) + b"]"
    assert compact(wide) is wide


def test_the_limit_can_be_lowered_for_a_value_inside_other_containers() -> None:
    assert compact(nested(124), max_depth=124)
    with pytest.raises(InvalidRequest):
        compact(nested(125), max_depth=124)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    label: str | None = None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, b"null"),
        (True, b"true"),
        ("grüße\n", '"grüße\\n"'.encode()),
        ({"b": 1, "a": [1.5, None]}, b'{"b":1,"a":[1.5,null]}'),
        ((1, 2), b"[1,2]"),
        (10**40, b"1" + b"0" * 40),
        ({1: "one"}, b'{"1":"one"}'),
        (Colour.RED, b'"red"'),
        (Point(1.0), b'{"x":1.0,"label":null}'),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00Z"'),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ("null and NaN", b'"null and NaN"'),
    ],
)
def test_python_values_become_compact_json(value: object, stored: bytes) -> None:
    assert encode(value) == stored


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_json_cannot_say_are_refused_wherever_they_hide(number: float) -> None:
    places: list[object] = [number, [number], (1, number), {"a": {"b": [None, number]}}]
    places.append([10**40, number])  # too long for the quick look, which then gives way
    for place in [*places, Point(number), [Point(1.0), Point(number)]]:
        with pytest.raises(InvalidRequest, match="NaN"):
            encode(place)


def test_none_beside_long_integers_or_odd_bytes_is_no_refusal() -> None:
    assert encode([None, 10**40, 1.5]) == b"[null,1" + b"0" * 40 + b",1.5]"
    bytes_of_nan = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
    assert encode([None, bytes_of_nan]) == b'[null,"y3/4AAAAAAAA"]'


@pytest.mark.parametrize("value", ["\ud800", {"\udc00": 1}, ["ok", "\ud83d"]])
def test_lone_surrogates_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        encode(value)


@pytest.mark.parametrize("value", [object(), {None: 1}, {(1, 2): 3}, 1j, range(3), [10**5000]])
def test_what_cannot_be_json_is_refused_with_advice(value: object) -> None:
    with pytest.raises(InvalidRequest, match="convert it"):
        encode(value)


def test_values_nest_up_to_the_limit() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert encode(value).count(b"[") == MAX_DEPTH
    with pytest.raises(InvalidRequest, match="deeper"):
        encode([value])


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidRequest, match="refers to itself"):
        encode(loop)


def test_ready_json_inside_a_value_is_checked_and_compacted() -> None:
    assert encode({"a": msgspec.Raw(b"[1, null]"), "b": None}) == b'{"a":[1,null],"b":null}'
    with pytest.raises(InvalidRequest, match="malformed"):
        encode({"a": msgspec.Raw(b"garbage")})


@pytest.mark.parametrize(
    ("raw", "count"),
    [
        (b"{}", 0),
        (b'{"a":1}', 1),
        (b'{"a":1,"a":2}', 2),
        (b'{"a":{"x":1,"y":2},"b":[1,2,{"z":3}],"c":"p,q:r"}', 3),
        (b'{"' + BACKSLASH + b'",":"}{"}', 1),
        (b"[]", None),
        (b"null", None),
        (b'"{"', None),
    ],
)
def test_members_are_counted_at_the_top_level_only(raw: bytes, count: int | None) -> None:
    assert member_count(raw) == count


def test_more_members_than_a_limit_are_noticed() -> None:
    full = encode({f"k{i}": "::" for i in range(64)})
    assert not has_more_members(full, 64)
    assert not has_more_members(b"{}", 64)
    assert has_more_members(splice_members(full, {"one": "more"}), 64)
    assert not has_more_members(b'["' + b":" * 100 + b'"]', 64)


def test_spliced_members_follow_bytes_left_alone() -> None:
    meta = b'{"n":1e2,"n":-0.0,"u":"' + BACKSLASH + b'u0041"}'
    assert (
        splice_members(meta, {"$from": 'q"1'}) == meta[:-1] + b',"$from":"q' + BACKSLASH + b'"1"}'
    )
    assert splice_members(meta, b'{"x":{"y":1}}') == meta[:-1] + b',"x":{"y":1}}'


def test_splicing_with_an_empty_object_on_either_side_adds_no_comma() -> None:
    assert splice_members(b"{}", {"a": "b"}) == b'{"a":"b"}'
    assert splice_members(b'{"a":1}', {}) == b'{"a":1}'
    assert splice_members(b"{}", b"{}") == b"{}"


def test_only_objects_take_or_lose_members() -> None:
    with pytest.raises(AssertionError):
        splice_members(b"[1]", {"a": "b"})
    with pytest.raises(AssertionError):
        splice_members(b"{}", b"1")
    with pytest.raises(AssertionError):
        drop_members(b"null", {"a"})


def test_dropped_members_go_whole_and_the_rest_keeps_its_bytes() -> None:
    meta = b'{"a":1e2,"gone":{"a":[1,{"b":","}]},"b":"x","gone":2,"c":[]}'
    assert drop_members(meta, {"gone"}) == b'{"a":1e2,"b":"x","c":[]}'
    assert drop_members(meta, {"a", "b", "c", "gone"}) == b"{}"
    assert drop_members(meta, {"absent"}) == meta
    assert drop_members(b"{}", {"a"}) == b"{}"


def test_a_member_is_dropped_however_its_key_is_escaped() -> None:
    meta = b'{"' + BACKSLASH + b'u0024from":"q","keep":1}'
    assert json.loads(meta)["$from"] == "q"
    assert drop_members(meta, {"$from"}) == b'{"keep":1}'

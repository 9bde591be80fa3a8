"""A body decoded in steps says what it says as a whole, and is refused in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.errors import InvalidRequest
from topics.wire import requests
from topics.wire.requests import long_writes, writing
from topics.wire.requests.watching import Command, PublishCommand

T = TypeVar("T")

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
payloads = st.recursive(
    st.sampled_from([None, 1, "", "all of them", "]", '},{"data":', "\\", 'x"', "ä", " "]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "a", "records", "ä"]), inner, max_size=3)
    ),
    max_leaves=8,
)
records = st.fixed_dictionaries(
    {"data": payloads}, optional={"tag": names, "node": names, "meta": payloads, "zz": payloads}
).map(lambda record: {"topic": "t"} | record) | st.fixed_dictionaries({"data": payloads})
flawed = st.sampled_from([1, {}, {"data": 1, "tag": 5}, {"tag": "x"}, []])
members = st.fixed_dictionaries(
    {},
    optional={
        "node": names,
        "idempotency_key": names,
        "create": st.booleans() | st.just(1),
        "config": st.sampled_from([{"type": "queue"}, {"type": 1}, None]),
        "expect_head": st.none() | st.just(3),
        "x": payloads,
        "y": st.lists(records, max_size=3) | st.just({"records": [{"data": 1}]}),
        "op": st.sampled_from(["publish", "ping"]),
        "topic": st.just("orders"),
        "request_id": payloads,
    },
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A write in some spelling, perhaps with a mistake."""
    spelling: dict[str, Any] = draw(
        st.sampled_from(
            [{"separators": (",", ":")}, {}, {"indent": 1}, {"separators": (",\n", ": ")}]
        )
    )
    before, after = draw(members), draw(members)
    some: list[object] = [*draw(st.lists(records, max_size=6))]
    if draw(st.integers(0, 4)) == 0:
        some.insert(draw(st.integers(0, len(some))), draw(flawed))
    for name in before:
        after.pop(name, None)
    whole = before | {"records": some} | after
    text = json.dumps(whole, ensure_ascii=draw(st.booleans()), **spelling).encode()
    if draw(st.integers(0, 3)) == 0:
        at, lost = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
        junk = draw(
            st.sampled_from([b"", b",", b"]", b"}", b'"', b" ", b"\xff", b'"records":[1],'])
        )
        text = text[:at] + junk + text[at + lost :]
    return text


piece_bytes = st.integers(min_value=0, max_value=300)


def finished(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def outcome(decode: Callable[[], T]) -> T | str:
    try:
        return decode()
    except InvalidRequest as error:
        return f"refused: {error}"


@given(body=bodies() | st.binary(max_size=40), piece=piece_bytes)
@example(b'{"records":[{"data":1},{"data":2}],"idempotency_key":"k","x":[]}', 0)
@example(b'{"records":[{"data":1}],"x":[{"data":2},{"data":3}]}', 0)
@example(b'{"x":{"records":[{"data":1}]},"records":[{"data":"all of them"}]}', 0)
@example(b'{"records":[{"data":[{"data":1},{"data":2}]},{"data":3}]}', 0)
@example(b'{"records":[{"data":1},{"data":2},]}', 0)
@example(b'{"records":[{"data":1},,{"data":2}]}', 0)
@example(b'{"records":[{"data":' + b"[" * 130 + b"]" * 130 + b'},{"data":1}]}', 0)
def test_a_write_is_understood_alike(body: bytes, piece: int) -> None:
    steps = finished(requests.decode_write_in_steps(body, piece_bytes=piece))
    assert steps is None or steps == outcome(lambda: requests.decode_write(body))


@given(body=bodies() | st.binary(max_size=40), piece=piece_bytes)
def test_a_stage_is_understood_alike(body: bytes, piece: int) -> None:
    steps = finished(requests.decode_stage_in_steps(body, piece_bytes=piece))
    assert steps is None or steps == outcome(lambda: requests.decode_stage(body))


def parts_of(command: Command) -> object:
    if not isinstance(command, PublishCommand):
        return command
    kept = msgspec.structs.replace(command, records=[])
    return kept, command.write


@given(body=bodies() | st.binary(max_size=40), piece=piece_bytes)
def test_a_publish_is_understood_alike(body: bytes, piece: int) -> None:
    steps = finished(requests.decode_command_in_steps(body, piece_bytes=piece))
    if steps is not None:
        command, sent = steps
        assert isinstance(command, PublishCommand)
        whole = outcome(lambda: parts_of(requests.decode_command(body)))
        assert (msgspec.structs.replace(command, records=[]), sent) == whole


@given(body=bodies() | st.binary(max_size=40))
def test_a_command_read_as_a_whole_comes_with_what_it_writes(body: bytes) -> None:
    found = outcome(lambda: requests.decode_command_and_write(body))
    whole = outcome(lambda: requests.decode_command(body))
    if isinstance(found, tuple):
        sent = whole.write if isinstance(whole, PublishCommand) else None
        assert found == (whole, sent)
    else:
        assert found == whole


@given(body=bodies(), piece=piece_bytes)
def test_more_records_than_anybody_takes_are_counted_alike(body: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (writing, long_writes):
            patch.setattr(module, "REFUSED_RECORDS", 2)
        steps = finished(requests.decode_write_in_steps(body, piece_bytes=piece))
        assert steps is None or steps == outcome(lambda: requests.decode_write(body))

"""Long bodies are judged like short ones; those made to cost much are refused before they do."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.errors import InvalidRequest
from topics.wire import decoding, field_names, jsonbytes, requests

COMMAND: dict[str, Any] = {"op": "subscribe", "topic": "a"}


@given(
    steps=st.lists(st.sampled_from("[]"), max_size=60),
    depth=st.integers(min_value=1, max_value=6),
    piece=st.integers(min_value=1, max_value=20),
)
def test_many_brackets_are_counted_like_few(steps: list[str], depth: int, piece: int) -> None:
    text = "".join(steps).encode()
    deepest = max(accumulate(1 if step == "[" else -1 for step in steps), default=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonbytes, "_MANY_BRACKETS", piece)
        assert jsonbytes.is_deeper(text, depth) == (deepest > depth)


@pytest.fixture
def _all_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a body is, it counts as long."""
    monkeypatch.setattr(field_names, "LONG_BYTES", 0)
    monkeypatch.setattr(decoding, "LONG_BYTES", 0)


@pytest.mark.usefixtures("_all_long")
@pytest.mark.parametrize(
    ("body", "repeated"),
    [
        (b'{"topics":{"a":{}},"limit":1,"limit":2}', "limit"),
        (b'{"topics":{"a":{}},"limit":1,"\\u006cimit":2}', "limit"),
        (b'{"topics":{"a":{"tail":true,"tail":true}}}', "tail"),
        (b'{"topics":{"a":{}},"x":1,"x":2,"y":{"limit":1,"limit":2}}', None),
        (b'{"topics":{"a":{},"a":{"tail":true}}}', None),
    ],
)
def test_a_field_twice_is_found_in_a_long_body_too(body: bytes, repeated: str | None) -> None:
    if repeated is None:
        assert list(requests.decode_watch(body).topics) == ["a"]
    else:
        with pytest.raises(InvalidRequest, match=f"^{repeated} is given twice"):
            requests.decode_watch(body)


@pytest.mark.usefixtures("_all_long")
@pytest.mark.parametrize("key", ["x", "x%d"])
def test_an_object_with_very_many_members_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_names, "MAX_MEMBERS", 50)

    def write(others: int) -> bytes:
        unknown = ",".join(f'"{key % n if "%" in key else key}":1' for n in range(others))
        return f'{{{unknown},"records":[{{"data":1}}],"config":null}}'.encode()

    assert len(requests.decode_write(write(48)).drafts) == 1
    with pytest.raises(InvalidRequest, match="more than 50 members"):
        requests.decode_write(write(49))


@pytest.mark.usefixtures("_all_long")
@pytest.mark.parametrize("bound", ["MAX_CONTAINERS", "MAX_VALUES"])
def test_a_body_without_payloads_has_a_bound_on_its_parts(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, bound, 20)
    assert len(requests.decode_watch(_watch(5)).topics) == 5
    with pytest.raises(InvalidRequest, match="far more parts"):
        requests.decode_watch(_watch(30))
    assert requests.decode_diff(b"{}" + b" " * 4000).limit == 256


@pytest.mark.parametrize("bound", ["MAX_CONTAINERS", "MAX_VALUES"])
def test_commands_without_records_have_that_bound_and_records_do_not(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, bound, 20)
    padding = " " * jsonbytes.LONG_BYTES
    topics: dict[str, Any] = {f"t{n}": {} for n in range(30)}
    long = json.dumps({**COMMAND, "topics": topics, "x": padding}).encode()
    with pytest.raises(InvalidRequest, match="far more parts"):
        requests.decode_command(long)
    records = [{"data": [n]} for n in range(30)]
    publish = {"op": "publish", "topic": "a", "records": records, "x": padding}
    sent = requests.decode_command(json.dumps(publish).encode())
    assert isinstance(sent, requests.PublishCommand)
    assert len(sent.write.drafts) == 30
    with pytest.raises(InvalidRequest, match="malformed"):
        requests.decode_command(b'{"op":' + padding.encode())


@pytest.mark.parametrize("tail", ["", ', "node": "n"'])
def test_a_write_of_too_many_records_still_says_how_many(tail: str) -> None:
    count = 100_001
    records = ",".join(['{"data":1}'] * count)
    assert len(requests.decode_write(f'{{"records":[{records}]{tail}}}'.encode()).drafts) == count


def _watch(topics: int) -> bytes:
    return json.dumps({"topics": {f"t{n}": {} for n in range(topics)}}).encode()

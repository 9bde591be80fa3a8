"""Where a long body is cut, and which one is left whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topics.wire import cutting
from topics.wire.cutting import RecordCutter, Uncuttable

KNOWN = b'{"data":"known"}'


def taken_apart(body: bytes, piece_bytes: int = 0) -> tuple[list[bytes], bytes]:
    cutter = RecordCutter(body, piece_bytes=piece_bytes)
    pieces = [piece for piece in cutter.pieces() if piece is not None]
    return pieces, cutter.rest(KNOWN)


@pytest.mark.parametrize(
    "spelling",
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"indent": "\t", "separators": (",", ":")},
        {"separators": (",\n", ":")},
    ],
    ids=str,
)
def test_every_record_is_a_piece_however_they_are_spelled(spelling: dict[str, Any]) -> None:
    sent = [{"data": {"n": n}, "tag": "t"} for n in range(5)]
    body = json.dumps({"node": "x", "records": sent, "create": True}, **spelling).encode()
    pieces, rest = taken_apart(body)
    assert [json.loads(piece) for piece in pieces] == sent
    assert json.loads(rest) == {"node": "x", "records": [json.loads(KNOWN)], "create": True}


def test_a_piece_is_as_long_as_asked_for_and_ends_with_a_record() -> None:
    body = b'{"records":[%b]}' % b",".join([b'{"data":%d}' % n for n in range(10, 99)])
    pieces, _ = taken_apart(body, 100)
    assert b",".join(pieces) == body[len(b'{"records":[') : -2]
    assert {len(piece) for piece in pieces[:-1]} == {107}


def test_what_looks_like_a_record_inside_one_is_no_border() -> None:
    one = b'{"data":[{"data":1},{"data":2},{"data":3}]}'
    cutter = RecordCutter(b'{"records":[%b,%b]}' % (one, one), piece_bytes=0)
    found = list(cutter.pieces())
    assert found == [None, None, one, None, None, one]


def test_records_behind_another_array_and_before_one_are_found() -> None:
    pieces, rest = taken_apart(b'{"x":[1],"records":[{"data":1},{"data":2}],"y":[[]],"z":"]"}')
    assert pieces == [b'{"data":1}', b'{"data":2}']
    assert rest == b'{"x":[1],"records":[%b],"y":[[]],"z":"]"}' % KNOWN


def test_records_that_do_not_begin_like_the_first_stay_with_the_one_before() -> None:
    body = b'{"records":[{"data":1},{"tag":"a","data":2},{"data":3}]}'
    assert taken_apart(body)[0] == [b'{"data":1},{"tag":"a","data":2}', b'{"data":3}']


@pytest.mark.parametrize(
    "records", [b"", b'{"data":1}', b'{"data":1} , {"data":2}', b'{"Data":1},{"Data":2}', b"1,2"]
)
def test_what_would_be_one_piece_is_left_whole(records: bytes) -> None:
    with pytest.raises(Uncuttable):
        taken_apart(b'{"records":[%b]}' % records)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"records":{}}',
        b'{"rec\\u006frds":[{"data":1}]}',
        b'{"records":[{"data":1}',
        b'{"records":[{"data":1},{"data":2]}]}',
        b'{"records":[{"data":1},{"data":2},]}',
        b'{"records":[' + b"[" * 100_000 + b"]}",
        b'{"records":[{"data":1}],"x":[[],[[[]]],[1,2]]}',
    ],
    ids=lambda body: body[:40].decode(),
)
def test_other_bodies_are_left_whole(body: bytes) -> None:
    with pytest.raises(Uncuttable):
        taken_apart(body)


def test_records_have_to_begin_near_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"x":"%b","records":[{"data":1},{"data":2}]}' % (b"x" * 50)
    assert taken_apart(body)[0]
    monkeypatch.setattr(cutting, "_HEAD_BYTES", 50)
    with pytest.raises(Uncuttable):
        taken_apart(body)


def test_a_long_end_without_a_border_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "_FAR_BYTES", 50)
    body = b'{"records":[{"data":1},{"data":"%b"}]}'
    assert len(taken_apart(body % (b"x" * 30))[0]) == 2
    with pytest.raises(Uncuttable):
        taken_apart(body % (b"x" * 50))


def test_too_many_wrong_guesses_leave_the_body_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = b'{"data":[{"data":1},{"data":2},{"data":3}]}'
    monkeypatch.setattr(cutting, "_MAX_TRIES", 2)
    with pytest.raises(Uncuttable):
        taken_apart(b'{"records":[%b,%b]}' % (one, one))

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.http.body import RequestBody, plan_body
from topics.http.messages import Response


@given(pieces=st.lists(st.binary(max_size=20), max_size=10))
def test_pieces_join_to_the_whole(pieces: list[bytes]) -> None:
    body = RequestBody(1000, gzipped=False)
    for piece in pieces:
        assert body.feed(piece) is None
    assert body.finish() == b"".join(pieces)
    assert body.received == body.held_bytes == sum(map(len, pieces))


def test_one_piece_is_not_copied() -> None:
    piece = b"whole"
    body = RequestBody(1000, gzipped=False)
    body.feed(piece)
    assert body.finish() is piece


def test_what_a_body_holds_counts_decoded() -> None:
    body = RequestBody(1000, gzipped=True)
    body.feed(gzip.compress(b"x" * 900))
    assert body.held_bytes == 900
    assert body.received < 100


def test_zero_allows_only_the_empty_body() -> None:
    assert RequestBody(0, gzipped=False).finish() == b""
    refusal = RequestBody(0, gzipped=False).feed(b"x")
    assert refusal is not None
    assert refusal.status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({b"content-encoding": b"br", b"content-length": b"11"}, 415),
        ({b"content-encoding": b"gzip", b"content-length": b"11"}, 413),
        ({b"content-length": b"9" * 5000}, 413),
        ({b"content-length": b"5, 5"}, 400),
        ({b"content-length": b"-5"}, 400),
    ],
)
def test_headers_alone_can_refuse_a_body(headers: dict[bytes, bytes], status: int) -> None:
    plan = plan_body(headers, max_bytes=10)
    assert isinstance(plan, Response)
    assert plan.status == status


@pytest.mark.parametrize("coding", [b"", b"identity", b"gzip", b"X-GZIP ", b" Identity"])
def test_other_bodies_are_read(coding: bytes) -> None:
    headers = {b"content-encoding": coding, b"content-length": b"10"}
    assert isinstance(plan_body(headers, max_bytes=10), RequestBody)

"""Heads are decoded and checked once, and mean what they would mean if decoded every time."""

from __future__ import annotations

import pytest
from h2.exceptions import ProtocolError
from hpack import Decoder, Encoder

from topics.http.h2_engine import KnownHeads

REQUEST = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/v0/health"),
    (b":authority", b"x"),
    (b"accept", b"*/*"),
]


def block(encoder: Encoder, *headers: tuple[bytes, bytes]) -> bytes:
    return encoder.encode([*REQUEST, *headers])


def test_a_known_head_is_not_decoded_again() -> None:
    encoder, decoder = Encoder(), KnownHeads()
    decoder.decode(block(encoder), raw=True)  # fills the table
    again = block(encoder)
    first = decoder.decode(again, raw=True)
    assert list(first) == REQUEST
    assert decoder.decode(again, raw=True) is first


def test_the_same_bytes_are_decoded_anew_after_the_table_has_changed() -> None:
    encoder, decoder, plain = Encoder(), KnownHeads(), Decoder()
    blocks = [
        block(encoder, (b"x", b"1")),
        block(encoder, (b"x", b"1")),
        block(encoder, (b"y", b"2")),  # moves everything in the table by one
        block(encoder, (b"x", b"1")),
        block(encoder, (b"y", b"2")),
    ]
    for data in blocks:
        assert list(decoder.decode(data, raw=True)) == list(plain.decode(data, raw=True))
    with pytest.raises(ProtocolError):  # its indexes mean other headers by now
        decoder.decode(blocks[1], raw=True)


def test_many_different_heads_do_not_pile_up() -> None:
    encoder, decoder = Encoder(), KnownHeads()
    encoder.header_table_size = 0
    for number in range(500):
        decoder.decode(block(encoder, (b"n", b"%d" % number)), raw=True)
    assert len(decoder._known) <= 64


@pytest.mark.parametrize(
    "headers",
    [
        REQUEST[1:],
        [*REQUEST, (b"Upper", b"x")],
        [*REQUEST, (b"connection", b"close")],
        [*REQUEST, (b"te", b"gzip")],
        [*REQUEST[:3], (b"accept", b"*/*"), (b":authority", b"x")],
        [*REQUEST, REQUEST[2]],
        [(b"bad name", b"x")],
    ],
)
def test_a_malformed_head_is_refused_every_time(headers: list[tuple[bytes, bytes]]) -> None:
    encoder, decoder = Encoder(), KnownHeads()
    for _ in range(3):
        with pytest.raises(ProtocolError):
            decoder.decode(encoder.encode(headers), raw=True)


def test_trailers_are_fine_on_their_own() -> None:
    assert list(KnownHeads().decode(Encoder().encode([(b"sum", b"1")]), raw=True)) == [
        (b"sum", b"1")
    ]

"""Heads are decoded and checked once and mean what they would if decoded every time; answers are
encoded so that any decoder reads them, whatever came before."""

from __future__ import annotations

import pytest
from h2.exceptions import ProtocolError
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from topics.http.h2.fields import FieldCache, PlainFields

Field = tuple[bytes, bytes]
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
    encoder, decoder = Encoder(), FieldCache()
    decoder.decode(block(encoder), raw=True)  # fills the table
    again = block(encoder)
    first = decoder.decode(again, raw=True)
    assert list(first) == REQUEST
    assert decoder.decode(again, raw=True) is first


def test_the_same_bytes_are_decoded_anew_after_the_table_has_changed() -> None:
    encoder, decoder, plain = Encoder(), FieldCache(), Decoder()
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


def test_a_table_emptied_and_filled_again_counts_as_changed() -> None:
    """Its newest entry and its length are what they were; the entries behind are others."""
    decoder, plain = FieldCache(), Decoder()
    static = b"\x82\x86\x84\x01\x01x"  # GET, http, / and an authority that is not indexed
    emptied = b"\x20\x3f\xe1\x1f"  # to nothing, and back to 4096 bytes
    newest_two = static + b"\xbe\xbf"
    for data in (
        static + b"\x40\x01a\x011" + b"\x40\x01b\x012",
        newest_two,
        newest_two,
        emptied + static + b"\x40\x01c\x013" + b"\x40\x01b\x012",
        newest_two,
    ):
        assert list(decoder.decode(data, raw=True)) == list(plain.decode(data, raw=True))


def test_many_different_heads_do_not_pile_up() -> None:
    encoder, decoder = Encoder(), FieldCache()
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
    encoder, decoder = Encoder(), FieldCache()
    for _ in range(3):
        with pytest.raises(ProtocolError):
            decoder.decode(encoder.encode(headers), raw=True)


def test_trailers_are_fine_on_their_own() -> None:
    assert list(FieldCache().decode(Encoder().encode([(b"sum", b"1")]), raw=True)) == [
        (b"sum", b"1")
    ]


def test_only_a_plain_request_is_remembered_as_one() -> None:
    encoder, decoder = Encoder(), FieldCache()
    for headers, is_plain in (
        ([*REQUEST], True),
        ([*REQUEST, (b"content-length", b"12")], True),
        ([*REQUEST, (b"content-length", b"twelve")], False),
        ([*REQUEST, (b"content-length", b"9" * 21)], False),
        ([*REQUEST, (b"content-length", b"1"), (b"content-length", b"2")], False),
        ([*REQUEST, (b"expect", b"100-continue")], False),
        ([*REQUEST, (b"content-encoding", b"gzip")], False),
        ([(b"sum", b"1")], False),
    ):
        for _ in range(2):  # the first may change the table
            data = encoder.encode(headers)
            decoder.decode(data, raw=True)
        assert (decoder.plain(data) is not None) == is_plain, headers


def test_a_block_that_was_looked_at_is_not_decoded_again() -> None:
    """It would go into the table twice."""
    encoder, decoder, plain = Encoder(), FieldCache(), Decoder()
    for headers in (
        [*REQUEST, (b"expect", b"100-continue")],
        [(b"sum", b"1")],
        [*REQUEST, (b"expect", b"100-continue")],
    ):
        data = encoder.encode(headers)
        assert decoder.plain(data) is None
        assert list(decoder.decode(data, raw=True)) == headers
        plain.decode(data, raw=True)
        assert decoder.header_table.dynamic_entries == plain.header_table.dynamic_entries


def test_what_was_wrong_with_a_block_is_said_when_it_is_decoded() -> None:
    decoder = FieldCache()
    data = Encoder().encode(REQUEST[1:])
    assert decoder.plain(data) is None
    with pytest.raises(ProtocolError):
        decoder.decode(data, raw=True)


def test_what_is_remembered_of_a_request_is_what_it_says() -> None:
    encoder, decoder = Encoder(), FieldCache()
    for _ in range(2):
        data = block(encoder, (b"content-length", b"12"), (b"a", b"1"), (b"a", b"2"))
        decoder.decode(data, raw=True)
    plain = decoder.plain(data)
    assert plain is not None
    assert plain.length == 12
    assert plain.request.method == "GET"
    assert plain.request.target == b"/v0/health"
    assert plain.request.headers == {
        b"accept": b"*/*",
        b"content-length": b"12",
        b"a": b"1, 2",
        b"host": b"x",
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from((b":status", b"date", b"x-request-id", b"age", b"accept-charset")),
            st.one_of(
                st.binary(max_size=20), st.sampled_from((b"", b"200", b"x" * 127, b"y" * 300))
            ),
        )
    )
)
def test_every_decoder_reads_an_answer_whatever_came_before(fields: list[Field]) -> None:
    encoder, decoder = PlainFields(), Decoder()
    for _ in range(2):
        assert list(decoder.decode(encoder.encode(fields), raw=True)) == fields
    assert not decoder.header_table.dynamic_entries


def test_an_answer_starts_with_the_sizes_the_peer_has_asked_of_the_table() -> None:
    encoder, decoder = PlainFields(), Decoder()
    for size in (100, 100, 2048):
        encoder.header_table_size = size
    assert list(decoder.decode(encoder.encode([(b"age", b"1")]), raw=True)) == [(b"age", b"1")]
    assert decoder.header_table_size == 2048
    assert encoder.encode([(b"age", b"1")]) == PlainFields().encode([(b"age", b"1")])

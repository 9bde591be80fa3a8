import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.http.coding import BadGzip, Inflater, TooMuch, accepts_gzip, compress


@given(
    members=st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    step=st.integers(min_value=1, max_value=50),
)
def test_members_decode_however_they_are_cut(members: list[bytes], step: int) -> None:
    encoded = b"".join(map(gzip.compress, members))
    inflater = Inflater(1000)
    pieces = [inflater.feed(encoded[at : at + step]) for at in range(0, len(encoded), step)]
    inflater.finish()
    assert b"".join(pieces) == b"".join(members)


@given(body=st.binary(min_size=1, max_size=200), data=st.data())
def test_a_cut_anywhere_is_noticed(body: bytes, data: st.DataObject) -> None:
    encoded = gzip.compress(body)
    cut = data.draw(st.integers(min_value=1, max_value=len(encoded) - 1))
    inflater = Inflater(1000)
    inflater.feed(encoded[:cut])
    with pytest.raises(BadGzip):
        inflater.finish()


def test_nothing_at_all_is_whole() -> None:
    Inflater(10).finish()


@pytest.mark.parametrize("size", [10, 11])
def test_the_limit_itself_is_allowed(size: int) -> None:
    encoded = gzip.compress(b"x" * size)
    inflater = Inflater(10)
    if size == 10:
        assert inflater.feed(encoded) == b"x" * 10
        inflater.finish()
    else:
        with pytest.raises(TooMuch):
            inflater.feed(encoded)


def test_the_limit_spans_members() -> None:
    with pytest.raises(TooMuch):
        Inflater(10).feed(gzip.compress(b"x" * 6) * 2)


@pytest.mark.parametrize("bad", [b"nonsense", zlib.compress(b"x"), b"\x1f\x8b\x00\x00"])
def test_other_bytes_are_bad(bad: bytes) -> None:
    with pytest.raises(BadGzip):
        Inflater(10).feed(bad)


def test_compression_is_repeatable_and_undone_by_gzip() -> None:
    body = b"hello " * 1000
    assert compress(body) == compress(body)
    assert gzip.decompress(compress(body)) == body


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"gzip", True),
        (b"GZIP", True),
        (b"deflate, gzip;q=0.1", True),
        (b"*", True),
        (b"br, *;q=0.5", True),
        (b"gzip;q=0", False),
        (b"gzip;q=0.0, *", False),
        (b"*;q=0", False),
        (b"*;q=0, gzip", True),
        (b"identity", False),
        (b"", False),
        (b"gzip;q=much", False),
        (b"gzip; q=1 ; x=y", True),
        (b"notgzip", False),
    ],
)
def test_gzip_is_accepted_when_named_or_covered(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted

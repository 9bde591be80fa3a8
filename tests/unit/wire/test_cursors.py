from base64 import b64encode, urlsafe_b64encode

import pytest

from topics.errors import InvalidRequest
from topics.wire.cursors import list_cursor, parse_list_cursor, parse_stream_id, stream_id


def test_a_list_cursor_is_base64url_without_padding() -> None:
    assert list_cursor("orders") == "eyJhZnRlciI6Im9yZGVycyJ9"
    assert "=" not in list_cursor("a")
    assert parse_list_cursor(list_cursor("orders")) == "orders"


@pytest.mark.parametrize("name", ["a", "ab", "abc", "x>y?", "zürich~~"])
def test_either_alphabet_and_padding_are_accepted(name: str) -> None:
    raw = b'{"after":"%b"}' % name.encode()
    for text in (b64encode(raw), urlsafe_b64encode(raw)):
        assert parse_list_cursor(text.decode()) == name
        assert parse_list_cursor(text.decode().rstrip("=")) == name


@pytest.mark.parametrize(
    "inside", [b"{}", b"5", b"null", b'{"after":5}', b'{"after":null}', b'["after"]', b"1e400"]
)
def test_json_without_a_name_begins_the_list(inside: bytes) -> None:
    assert parse_list_cursor(urlsafe_b64encode(inside).decode()) is None
    assert parse_list_cursor("") is None


@pytest.mark.parametrize(
    "text",
    ["!", "a", "abcde", "eyJ hZnRlciI6ImEifQ", "é", "====", "aGVsbG8", "gICA", "\n"],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="next_cursor"):
        parse_list_cursor(text)


def test_a_stream_id_lists_topics_by_name() -> None:
    assert stream_id({"orders": 14}) == "eyJvcmRlcnMiOjE0fQ"
    assert stream_id({"b": 2, "a": 1}) == stream_id({"a": 1, "b": 2})
    assert parse_stream_id(stream_id({"b": 2, "a": 1})) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "inside",
    [
        b"",
        b"5",
        b"[]",
        b"{",
        b'{"a":-1}',
        b'{"a":"1"}',
        b'{"a":1.0}',
        b'{"a":null}',
        b'{"a":18446744073709551616}',
        b'{"\xff":1}',
        b"[" * 5000,
    ],
)
def test_a_stream_id_that_says_nothing_is_ignored(inside: bytes) -> None:
    assert parse_stream_id(urlsafe_b64encode(inside).decode()) is None


@pytest.mark.parametrize("text", ["!", "é", "a"])
def test_a_stream_id_that_is_not_base64_is_ignored(text: str) -> None:
    assert parse_stream_id(text) is None

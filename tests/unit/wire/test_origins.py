"""Hosts and origins as headers spell them."""

from __future__ import annotations

import pytest

from topics.wire.origins import Authority, parse_authority, parse_origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", Authority("localhost", None)),
        ("LocalHost.:4000", Authority("localhost", 4000)),
        (" a-b_c.example.com:80 ", Authority("a-b_c.example.com", 80)),
        ("127.0.0.1:4000", Authority("127.0.0.1", 4000)),
        ("[::1]", Authority("[::1]", None)),
        ("[FE80::1]:4000", Authority("[fe80::1]", 4000)),
        ("a:", Authority("a", None)),
    ],
)
def test_a_host_is_read_with_and_without_a_port(text: str, expected: Authority) -> None:
    assert parse_authority(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "a:b",
        "a:99999",
        "a:123456",
        "::1",
        "[::1",
        "[::1]x",
        "[a]",
        "[]",
        "a b",
        "a,b",
        "a/b",
        "u@a",
        "evil.com/.localhost",
        "-a",
        "a-",
        ".a",
        "a..",
        "ü",
        "a\x00",
    ],
)
def test_what_is_no_host_is_none(text: str) -> None:
    assert parse_authority(text) is None


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "a.b.localhost."])
def test_names_below_localhost_stay_on_this_machine(name: str) -> None:
    found = parse_authority(name)
    assert found is not None
    assert found.is_localhost
    assert not found.is_address


@pytest.mark.parametrize(
    "name", ["notlocalhost", "localhost.evil.com", "127.0.0.1.nip.io", "127.1"]
)
def test_names_that_only_look_local_are_not(name: str) -> None:
    found = parse_authority(name)
    assert found is not None
    assert not found.is_localhost
    assert not found.is_address


@pytest.mark.parametrize(
    "text", ["null", "", "a", "http://", "http://a/", "http://u@a", "//a", "1://a"]
)
def test_what_is_no_origin_is_none(text: str) -> None:
    assert parse_origin(text) is None


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("HTTP://A:80", "http://a"),
        ("https://a:443", "https://a"),
        ("https://a:80", "https://a:80"),
        ("app://x", "app://x"),
        ("http://[::1]:4000", "http://[::1]:4000"),
    ],
)
def test_an_origin_has_one_spelling(sent: str, kept: str) -> None:
    found = parse_origin(sent)
    assert found is not None
    assert found.text == kept


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://a:4000", "a:4000", True),
        ("http://a", "a:80", True),
        ("https://a", "a", True),
        ("https://a:443", "a", True),
        ("http://a:3000", "a:4000", False),
        ("http://a", "a:4000", False),
        ("http://b:4000", "a:4000", False),
    ],
)
def test_a_page_asks_its_own_server_when_host_and_port_agree(
    origin: str, host: str, same: bool
) -> None:
    page, asked = parse_origin(origin), parse_authority(host)
    assert page is not None
    assert asked is not None
    assert page.is_of(asked) is same

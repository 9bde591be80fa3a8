from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.conftest import Script
from tests.unit.client.fake_server import answering, reply

import topics
import topics.aio
from topics.errors import InvalidRequest, TopicNotFound

HERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("timeout", 0, "seconds above 0"),
        ("timeout", float("nan"), "seconds above 0"),
        ("heartbeat", "5s", "seconds above 0"),
        ("retries", -1, "whole number from 0"),
        ("retries", 1.5, "whole number from 0"),
        ("connections", 0, "whole number from 1"),
        ("tokn", "x", "known: token, timeout"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_before_anything_is_sent(
    setting: str, value: object, advice: str
) -> None:
    doors: list[Any] = [topics.open, topics.aio.open]
    for door in doors:
        with pytest.raises(InvalidRequest, match=advice) as caught:
            door(HERE, **{setting: value})
        assert setting in str(caught.value)


def test_a_misspelt_address_is_not_taken_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="looks like http://"):
        topics.open("htp://localhost:4000")
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_its_scheme_makes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=r'open\("http://localhost:4000"\)'):
        topics.open("localhost:4000")
    assert list(tmp_path.iterdir()) == []
    topics.open("./localhost:4000").close()
    topics.open("localhost:4000").close()  # a directory that exists is what was meant


@pytest.mark.parametrize(
    "address",
    ["http://[::1", "http://a..b:4000", f"http://{'a' * 64}:4000", "http://h:0", "http://h:x"],
)
def test_an_address_that_cannot_be_one_is_refused_before_anything_is_sent(address: str) -> None:
    doors: list[Any] = [topics.open, topics.aio.open]
    for door in doors:
        with pytest.raises(InvalidRequest, match="address looks like http://"):
            door(address)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    doors: list[Any] = [topics.open, topics.aio.open]
    for door in doors:
        with pytest.raises(InvalidRequest, match="ca_file") as caught:
            door("https://localhost", ca_file=str(path))
        assert str(path) in str(caught.value)


NO_UTF_8 = "\udcff"


def test_a_name_that_is_no_utf_8_is_that_of_no_topic(script: Script) -> None:
    missing = b'{"error":{"code":"topic_not_found","message":"no","detail":{"topic":"t"}}}'
    with topics.open() as log, pytest.raises(TopicNotFound):
        log.state(NO_UTF_8)
    server = script(answering(reply(404, missing), reply(200, b'{"topics":[]}')))
    with topics.open(server.url) as log:
        with pytest.raises(TopicNotFound):
            log.state(NO_UTF_8)
        assert log.topics(prefix=NO_UTF_8) == []

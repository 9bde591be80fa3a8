"""Somebody who is no topics server answers in its place: a proxy, a login page, noise."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.conftest import Script
from tests.unit.client.fake_server import Peer, answering, reply

import topics
import topics.aio
from topics.client._batching import Delivery
from topics.errors import TopicsError, Unreachable

LOGIN_PAGE = b"<html>Please log in</html>"
MISSING = b'{"error":{"code":"topic_not_found","message":"no","detail":{"topic":"t"}}}'
ACK = b'{"topic":"t","first_seq":7,"last_seq":7,"head_seq":7,"count":1,"created":true}'
both = pytest.mark.parametrize("shell", ["sync", "async"])


def call(shell: str, url: str, name: str, *args: object, **settings: Any) -> Any:  # noqa: ANN401
    """What a method of a log gives; `queue.claim` is one of its queue `q`."""
    if shell == "sync":
        with topics.open(url, **settings) as log:
            return _method(log, name)(*args)

    async def main() -> Any:  # noqa: ANN401
        async with topics.aio.open(url, **settings) as log:
            return await _method(log, name)(*args)

    return asyncio.run(main())


def _method(log: Any, name: str) -> Callable[..., Any]:  # noqa: ANN401 - of either shell
    of_queue = name.removeprefix("queue.")
    method: Callable[..., Any] = getattr(log if of_queue == name else log.queue("q"), of_queue)
    return method


def noise(peer: Peer) -> None:
    peer.request()
    peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")


@both
def test_a_call_that_was_answered_with_noise_is_not_taken_for_unsent(
    script: Script, shell: str
) -> None:
    server = script(*[noise] * 4)
    with pytest.raises(Unreachable, match="does not speak HTTP") as caught:
        call(shell, server.url, "queue.claim", 1, retries=3)
    assert caught.value.sent
    assert server.connections == 1  # whoever leased jobs the first time must not be asked again


@both
def test_an_answer_that_cannot_be_understood_is_an_error_of_ours(
    script: Script, shell: str
) -> None:
    server = script(answering(reply(body=LOGIN_PAGE)))
    with pytest.raises(Unreachable, match="not like a topics server") as caught:
        call(shell, server.url, "state", "orders")
    assert caught.value.sent
    assert server.url in str(caught.value)


@both
def test_a_refusal_of_somebody_else_says_whose_it_is(script: Script, shell: str) -> None:
    server = script(answering(reply(404, b"no such page \xff")))
    with pytest.raises(TopicsError, match="not from a topics server: no such page") as caught:
        call(shell, server.url, "state", "orders")
    assert caught.value.code == "http_404"
    assert "check the address" in str(caught.value)


def login_page_at_first(peer: Peer) -> None:
    for _ in range(2):
        peer.request()
        peer.send(reply(body=LOGIN_PAGE))
    while head := peer.request()[0]:
        peer.send(reply(404, MISSING) if head.startswith(b"GET") else reply(201, ACK))


@both
def test_a_producer_outlives_answers_it_cannot_understand(script: Script, shell: str) -> None:
    url = script(login_page_at_first).url
    told: list[Delivery] = []

    async def main() -> None:
        async with topics.aio.open(url) as log, log.producer("t", on_delivery=told.append) as to:
            await to.send(1)

    if shell == "sync":
        with topics.open(url) as log, log.producer("t", on_delivery=told.append) as to:
            to.send(1)
    else:
        asyncio.run(main())
    assert [delivery.seq for delivery in told] == [7]

"""The asyncio transport keeps the promises of the blocking one (see test_sync_http)."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.unit.client.conftest import Script
from tests.unit.client.fake_server import Peer, answering, reply

from topics.client.aio_http import AsyncHttp
from topics.errors import (
    Closed,
    NotAcceptable,
    Throttled,
    TopicNotFound,
    TopicsError,
    Unreachable,
)

T = TypeVar("T")
NOT_FOUND = b'{"error":{"code":"topic_not_found","message":"no such","detail":{"topic":"t"}}}'
BUSY = b'{"error":{"code":"throttled","message":"later","detail":{"retry_after_ms":20}}}'


def using(url: str, act: Callable[[AsyncHttp], Awaitable[T]], **settings: float) -> T:
    async def main() -> T:
        async with AsyncHttp(url, **settings) as http:  # type: ignore[arg-type]
            return await act(http)

    return asyncio.run(main())


async def get(http: AsyncHttp) -> bytes:
    return (await http.request("GET", "/x")).body


async def post(http: AsyncHttp) -> bytes:
    return (await http.request("POST", "/x", body=b"1")).body


def hang_up_after_request(peer: Peer) -> None:
    peer.request()


def never_answer(peer: Peer) -> None:
    peer.request()
    peer.wait_for_end()


def answer_only_the_first(peer: Peer) -> None:
    peer.request()
    peer.send(reply())
    never_answer(peer)


def test_one_connection_serves_many_requests(script: Script) -> None:
    server = script(answering(reply(body=b"1"), reply(body=b"2"), reply(body=b"3")))

    async def act(http: AsyncHttp) -> list[bytes]:
        return [await get(http) for _ in range(3)]

    assert using(server.url, act) == [b"1", b"2", b"3"]
    assert server.connections == 1


def test_tasks_share_a_bounded_pool(script: Script) -> None:
    server = script(answering(*[reply(body=b"%d" % n) for n in range(5)]))

    async def act(http: AsyncHttp) -> list[bytes]:
        return await asyncio.gather(*[get(http) for _ in range(5)])

    assert sorted(using(server.url, act, connections=1)) == [b"%d" % n for n in range(5)]
    assert server.connections == 1


def test_a_busy_pool_does_not_wait_for_ever(script: Script) -> None:
    async def act(http: AsyncHttp) -> None:
        occupied = asyncio.ensure_future(http.request("GET", "/x", timeout=60.0))
        await asyncio.sleep(0)
        with pytest.raises(Unreachable, match="busy"):
            await http.request("GET", "/x", timeout=0.05)
        occupied.cancel()
        await asyncio.gather(occupied, return_exceptions=True)

    using(script(never_answer).url, act, connections=1, retries=0)


def test_a_refusal_is_raised_as_the_error_of_the_embedded_log(script: Script) -> None:
    with pytest.raises(TopicNotFound, match="no such") as caught:
        using(script(answering(reply(404, NOT_FOUND))).url, get)
    assert caught.value.detail == {"topic": "t"}


def test_a_throttled_call_waits_as_long_as_asked_and_is_repeated(script: Script) -> None:
    server = script(answering(reply(429, BUSY), reply(429, BUSY), reply(body=b"done")))
    begun = time.monotonic()
    assert using(server.url, post) == b"done"
    assert time.monotonic() - begun >= 0.04


def test_repeats_are_bounded(script: Script) -> None:
    with pytest.raises(Throttled):
        using(script(answering(*[reply(429, BUSY)] * 3)).url, get, retries=2)


def test_a_call_that_may_have_been_carried_out_is_not_repeated(script: Script) -> None:
    server = script(hang_up_after_request)
    with pytest.raises(Unreachable) as caught:
        using(server.url, post)
    assert caught.value.sent


def test_a_harmless_call_is_repeated_when_the_answer_is_lost(script: Script) -> None:
    server = script(hang_up_after_request, hang_up_after_request, answering(reply(body=b"ok")))
    assert using(server.url, get) == b"ok"
    assert server.connections == 3


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(script: Script) -> None:
    closed = threading.Event()

    def act(peer: Peer) -> None:
        answering(reply())(peer)
        peer.socket.shutdown(socket.SHUT_RDWR)
        closed.set()

    server = script(act, answering(reply(body=b"again")))

    async def twice(http: AsyncHttp) -> bytes:
        await post(http)
        assert await asyncio.to_thread(closed.wait, 60)
        await asyncio.sleep(0.01)  # a turn of the loop, in which it hears of the end
        return await post(http)

    assert using(server.url, twice, retries=0) == b"again"


def test_a_server_that_takes_too_long_is_given_up(script: Script) -> None:
    async def act(http: AsyncHttp) -> None:
        await get(http)  # from here on there is a connection: the next request is sent at once
        await http.request("GET", "/x", timeout=0.1)

    with pytest.raises(Unreachable, match="too long") as caught:
        using(script(answer_only_the_first).url, act, retries=0)
    assert caught.value.sent


def test_nobody_listening_is_unreachable_and_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable) as caught:
        using(f"http://127.0.0.1:{port}", post, retries=1)
    assert not caught.value.sent


def test_something_that_is_no_http_is_unreachable(script: Script) -> None:
    with pytest.raises(Unreachable, match="HTTP"):
        using(script(answering(b"220 mail.example ESMTP\r\n")).url, get, retries=0)


def test_a_large_body_goes_out_and_a_large_answer_comes_in(script: Script) -> None:
    size = 5 << 20

    def act(peer: Peer) -> None:
        _, body = peer.request()
        peer.send(reply(body=body))

    async def echo(http: AsyncHttp) -> bytes:
        return (await http.request("POST", "/x", body=b"x" * size)).body

    assert len(using(script(act).url, echo)) == size


def test_a_connection_with_a_request_half_sent_is_not_used_again(script: Script) -> None:
    def act(peer: Peer) -> None:
        peer.socket.recv(1000)
        peer.send(reply(body=b"early"))
        over.wait(60)

    over = threading.Event()
    server = script(act, answering(reply(body=b"fresh")))

    async def twice(http: AsyncHttp) -> list[bytes]:
        first = await http.request("POST", "/x", body=b"x" * (32 << 20))
        return [first.body, await get(http)]

    assert using(server.url, twice) == [b"early", b"fresh"]
    over.set()


def test_a_stream_gives_parts_as_they_arrive_and_notices_silence(script: Script) -> None:
    go_on = threading.Event()

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        go_on.wait(60)
        peer.send(b"3\r\ntwo\r\n")
        peer.wait_for_end()

    async def read(http: AsyncHttp) -> list[bytes | None]:
        async with http.stream("GET", "/x") as stream:
            assert stream.status == 200
            got = [await stream.next_part(60)]
            go_on.set()
            return [*got, await stream.next_part(60), await stream.next_part(0.05)]

    assert using(script(act).url, read) == [b"one", b"two", None]


def test_a_refused_stream_raises_on_entry(script: Script) -> None:
    body = b'{"error":{"code":"not_acceptable","message":"m"}}'

    async def read(http: AsyncHttp) -> None:
        async with http.stream("GET", "/x"):
            raise AssertionError

    with pytest.raises(NotAcceptable):
        using(script(answering(reply(406, body))).url, read)


def test_a_closed_client_says_so() -> None:
    async def main() -> None:
        http = AsyncHttp("http://127.0.0.1:1")
        await http.close()
        await http.close()
        with pytest.raises(Closed):
            await http.request("GET", "/x")

    asyncio.run(main())


def test_a_cancelled_call_leaves_no_half_read_connection_behind(script: Script) -> None:
    server = script(never_answer, answering(reply(body=b"fresh")))

    async def act(http: AsyncHttp) -> bytes:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await get(http)
        return await get(http)

    assert using(server.url, act) == b"fresh"
    assert server.connections == 2


def test_words_of_a_proxy_are_an_error_that_keeps_the_status(script: Script) -> None:
    with pytest.raises(TopicsError, match="teapot") as caught:
        using(script(answering(reply(418, b"<html>teapot"))).url, get)
    assert caught.value.code == "http_418"

"""A connection that fails to take an answer is closed: its client would wait in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection as Library
from tests.unit.http.transports import HandFed
from tests.unit.http.turn_world import World, play, turn
from tests.unit.queue.builders import QUEUE

from topics.http.exchange import Exchange
from topics.http.h1.exchange import H1Exchange
from topics.http.h2.connection import H2Connection
from topics.http.h2.exchange import H2Exchange
from topics.http.hub import Hub
from topics.http.messages import Response


class Peer(HandFed):
    """A client by HTTP/2 that sends one request and reads nothing."""

    def __init__(self, hub: Hub, path: str) -> None:
        super().__init__()
        self.connection = H2Connection(hub, self, "")
        library = Library(H2Configuration())
        library.initiate_connection()
        head = [
            (":method", "GET"),
            (":path", path),
            (":scheme", "http"),
            (":authority", "localhost"),
        ]
        library.send_headers(1, head, end_stream=True)
        self._request = library.data_to_send()

    def ask(self) -> None:
        self.connection.data_received(self._request)

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        pass


class Failure:
    """Has every answer of one version of HTTP fail on its way to the connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Exchange]) -> None:
        self.happened = asyncio.Event()
        monkeypatch.setattr(kind, "_send_response", lambda exchange, response: self.fail(response))

    def fail(self, response: Response) -> None:
        self.happened.set()
        raise ZeroDivisionError


def test_by_http_1_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        a, b = world.hire("ab")
        with monkeypatch.context() as patch:
            Failure(patch, H1Exchange)
            a.append(1)
            await turn()
        assert a.closing
        b.append(2)
        await turn()
        assert b.answer[0] == 200
        assert not b.closing

    play(scene)
    assert "could not be answered" in caplog.text


def test_by_http_2_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        Failure(monkeypatch, H2Exchange)
        peer = Peer(world.hub, f"/v0/topics/{QUEUE}")
        peer.ask()
        await turn()
        assert peer.closing
        peer.connection.connection_lost(None)

    play(scene)
    assert "could not be answered" in caplog.text


def test_it_is_closed_when_a_compressed_answer_fails_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        (a,) = world.hire("a")
        a.append("x" * 200_000)
        await turn()
        assert a.answer[0] == 200
        failure = Failure(monkeypatch, H1Exchange)
        a.connection.data_received(
            f"GET /v0/topics/{QUEUE}/records HTTP/1.1\r\nhost: localhost\r\n"
            "accept-encoding: gzip\r\n\r\n".encode()
        )
        await asyncio.wait_for(failure.happened.wait(), 60)
        await turn()
        assert a.closing

    play(scene)
    assert "could not be answered" in caplog.text

"""What one peer sends over a WebSocket is handled a little at a time, in order and whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.http.transports import HandFed
from wsproto.frame_protocol import FrameProtocol, Opcode

from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response
from topics.http.ws import connection as websocket
from topics.http.ws.connection import WebSocket

FRAMES = 500


class Wire(HandFed):
    """A transport whose output nobody looks at."""

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        pass


class Nobody:
    """An application that is never asked."""

    def begin(self, request: Request) -> Response | None:
        raise AssertionError

    def __call__(self, request: Request, reply: Reply) -> None:
        raise AssertionError

    def end(self, request: Request, status: int | None) -> None:
        raise AssertionError


def frame(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return bytes(
        FrameProtocol(client=True, extensions=[])._serialize_frame(opcode, payload, fin=fin)
    )


def flood(kind: str) -> tuple[bytes, list[bytes]]:
    """Many frames of a kind and a last message; and the messages they amount to."""
    last = frame(Opcode.TEXT, b"last")
    if kind == "messages":
        return frame(Opcode.TEXT, b"m") * FRAMES + last, [b"m"] * FRAMES + [b"last"]
    if kind == "pings":
        return frame(Opcode.PING, b"p") * FRAMES + last, [b"last"]
    middle = frame(Opcode.CONTINUATION, b"m", fin=False) * FRAMES
    whole = frame(Opcode.TEXT, b"<", fin=False) + middle + frame(Opcode.CONTINUATION, b">")
    return whole + last, [b"<" + b"m" * FRAMES + b">", b"last"]


@pytest.mark.parametrize("kind", ["messages", "pings", "fragments"])
def test_a_flood_of_small_frames_lets_others_have_their_turn(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_TURN_S", 0.0)  # so that every frame is a turn's worth
    data, expected = flood(kind)

    async def scene() -> None:
        hub = Hub(Nobody(), Limits(), asyncio.get_running_loop())
        wire = Wire()
        heard: list[bytes] = []
        socket = WebSocket(hub, wire, on_over=lambda: None)
        socket.on_text = heard.append
        socket.start()
        socket.data_received(data)
        assert heard != expected
        for _ in range(4 * FRAMES):
            if heard == expected:
                break
            assert not wire.is_reading(), "what comes meanwhile would pile up"
            await asyncio.sleep(0)
        assert heard == expected
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.is_reading()
        socket.connection_lost(None)
        hub.stop()

    asyncio.run(scene())


def test_frames_of_a_sender_that_left_are_not_worked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_TURN_S", 0.0)

    async def scene() -> None:
        hub = Hub(Nobody(), Limits(), asyncio.get_running_loop())
        heard: list[bytes] = []
        socket = WebSocket(hub, Wire(), on_over=lambda: None)
        socket.on_text = heard.append
        socket.start()
        socket.data_received(flood("messages")[0])
        socket.connection_lost(None)
        before = len(heard)
        for _ in range(2 * FRAMES):
            await asyncio.sleep(0)
        assert len(heard) == before < FRAMES
        hub.stop()

    asyncio.run(scene())

"""WebSockets: handshake, messages of every shape, limits, back-pressure and closing."""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress
from select import select

import aiohttp
import pytest
from tests.blackbox.transport_server import WAIT_S, Served, Wire, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from wsproto.utilities import generate_accept_token

from topics.http.limits import Limits
from topics.http.messages import Response

KEY = base64.b64encode(b"0123456789abcdef").decode()
HANDSHAKE = ("Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13")


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    with serving(Limits(ws_max_frame_bytes=1000, ws_max_message_bytes=2000)) as served:
        yield served


@pytest.fixture(scope="module")
def touchy() -> Iterator[Served]:
    with serving(Limits(ws_nuisance_burst=100, ws_nuisance_per_s=1)) as served:
        yield served


def dial(served: Served) -> ClientConnection:
    return connect(
        f"ws://{served.host}:{served.port}/ws",
        max_size=None,
        open_timeout=WAIT_S,
        ping_interval=None,
        close_timeout=WAIT_S,
    )


def shake_hands(wire: Wire) -> None:
    wire.get("/ws", *HANDSHAKE, f"Sec-WebSocket-Key: {KEY}")
    status, headers = wire.read_head()
    assert status == 101
    assert headers["sec-websocket-accept"] == generate_accept_token(KEY.encode()).decode()
    assert headers["upgrade"] == "websocket"
    assert headers["connection"] == "Upgrade"
    assert "sec-websocket-extensions" not in headers


def frame(opcode: Opcode, payload: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=mask)


def read_close(wire: Wire) -> int:
    head = wire.file.read(2)
    assert head[0] == 0x88
    code = int.from_bytes(wire.file.read(head[1])[:2], "big")
    assert wire.at_end()
    return code


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 1_000_000])
def test_text_of_any_size_comes_back(shared: Served, size: int) -> None:
    with dial(shared) as socket:
        socket.send("x" * size)
        assert socket.recv() == "x" * size


def test_text_is_utf_8_across_fragments(shared: Served) -> None:
    with dial(shared) as socket:
        socket.send(iter(["gr", "ün", "→", ""]))
        assert socket.recv() == "grün→"


def test_a_character_may_be_cut_by_a_fragment(shared: Served) -> None:
    whole = "a→b".encode()
    with shared.connect() as wire:
        shake_hands(wire)
        wire.send(frame(Opcode.TEXT, whole[:2], fin=False) + frame(Opcode.CONT, whole[2:]))
        assert wire.file.read(2 + len(whole)) == b"\x81\x05" + whole


def test_binary_messages_are_told_apart(shared: Served) -> None:
    with dial(shared) as socket:
        socket.send(b"\0\1\2")
        assert socket.recv() == "3 bytes"


def test_pings_are_answered_even_inside_a_message(shared: Served) -> None:
    with shared.connect() as wire:
        shake_hands(wire)
        wire.send(frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.PING, b"hey"))
        assert wire.file.read(5) == b"\x8a\x03hey"
        wire.send(frame(Opcode.CONT, b"b"))
        assert wire.file.read(4) == b"\x81\x02ab"


def test_aiohttp_gets_along(shared: Served) -> None:
    async def talk() -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{shared.url}/ws") as socket,
        ):
            await socket.send_str("hello")
            answer = await socket.receive_str()
            assert await socket.close()
            return answer

    assert asyncio.run(talk()) == "hello"


def test_messages_sent_right_behind_the_handshake_are_not_lost(shared: Served) -> None:
    with shared.connect() as wire:
        head = "\r\n".join(
            ["GET /ws HTTP/1.1", "Host: t", *HANDSHAKE, f"Sec-WebSocket-Key: {KEY}", "", ""]
        )
        wire.send(head.encode() + frame(Opcode.TEXT, b"early"))
        assert wire.read_head()[0] == 101
        assert wire.file.read(7) == b"\x81\x05early"


def test_an_upgrade_may_be_granted_later(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        head = ["GET /hold HTTP/1.1", "Host: t", *HANDSHAKE, f"Sec-WebSocket-Key: {KEY}", "", ""]
        wire.send("\r\n".join(head).encode() + frame(Opcode.TEXT, b"early"))
        app.wait_until(lambda: bool(app.held))
        served.do(lambda: app.open_socket(app.held[0]))
        assert wire.read_head()[0] == 101
        assert wire.file.read(7) == b"\x81\x05early"


def test_after_a_refused_upgrade_the_connection_still_speaks_http(served: Served) -> None:
    app = served.app
    upgrade = (*HANDSHAKE, f"Sec-WebSocket-Key: {KEY}")
    with served.connect() as wire:
        for path in ("/forbidden", "/ok"):
            wire.get(path, *upgrade)
            assert wire.read().status in (403, 200)
        wire.get("/hold", *upgrade)
        wire.get("/ok")
        app.wait_until(lambda: bool(app.held))
        served.do(lambda: app.held[0](Response(401)))
        assert wire.read().status == 401
        assert wire.read().status == 200


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {KEY}"),
        (*HANDSHAKE, "Sec-WebSocket-Key: short"),
        (*HANDSHAKE, "Sec-WebSocket-Key: !!!"),
        HANDSHAKE,
        ("Upgrade: other", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
        (*HANDSHAKE, f"Sec-WebSocket-Key: {KEY}", "Content-Length: 0"),
    ],
)
def test_what_is_no_handshake_is_no_upgrade(shared: Served, headers: tuple[str, ...]) -> None:
    with shared.connect() as wire:
        wire.get("/ws", *headers)
        expected = 101 if "Content-Length: 0" in headers else 400
        assert wire.read_head()[0] == expected


def test_a_refusal_is_seen_by_clients(shared: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{shared.host}:{shared.port}/forbidden", open_timeout=WAIT_S)
    assert refused.value.response.status_code == 403


# Limits and nonsense


def test_a_message_of_the_limit_in_frames_of_the_limit_is_allowed(small: Served) -> None:
    with dial(small) as socket:
        socket.send(iter(["x" * 1000, "x" * 1000]))
        assert socket.recv() == "x" * 2000


@pytest.mark.parametrize("pieces", [["x" * 1001], ["x" * 1000, "x" * 1000, "x"]])
def test_too_much_closes_with_1009(small: Served, pieces: list[str]) -> None:
    with dial(small) as socket:
        with suppress(ConnectionClosed):
            socket.send(iter(pieces))  # may be refused before the last piece is out
        with pytest.raises(ConnectionClosed):
            socket.recv()
        assert socket.close_code == 1009


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.TEXT, b"unmasked", mask=False), 1002),
        (frame(Opcode.CONT, b"out of place"), 1002),
        (b"\xc1\x80" + bytes(4), 1002),
        (b"\x83\x80" + bytes(4), 1002),
        (frame(Opcode.TEXT, b"\xff\xfe"), 1007),
        (frame(Opcode.CLOSE, b"\x03"), 1002),
    ],
    ids=["unmasked", "no start", "reserved bit", "reserved opcode", "no UTF-8", "half a code"],
)
def test_nonsense_closes_with_its_code(shared: Served, data: bytes, code: int) -> None:
    with shared.connect() as wire:
        shake_hands(wire)
        wire.send(data)
        assert read_close(wire) == code


# Back-pressure


def test_a_paused_socket_delivers_nothing_until_resumed(served: Served) -> None:
    app = served.app
    with dial(served) as socket:
        app.wait_until(lambda: bool(app.sockets))
        upgrade = app.sockets[0]

        def pause_at_the_first(message: bytes) -> None:
            app.messages.append(message)
            upgrade.pause_reading()
            app.note()

        served.do(lambda: setattr(upgrade, "on_text", pause_at_the_first))
        for number in range(3):
            socket.send(str(number))
        for expected in (1, 2, 3):
            app.wait_until(lambda n=expected: len(app.messages) == n)  # type: ignore[misc]
            assert served.do(lambda: len(app.messages)) == expected
            served.do(upgrade.resume_reading)
    assert app.messages == [b"0", b"1", b"2"]


def test_unsent_messages_are_counted_and_draining_is_told(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        shake_hands(wire)
        app.wait_until(lambda: bool(app.sockets))
        upgrade = app.sockets[0]

        def fill() -> int:
            assert not upgrade.send_text(b"x" * 20_000_000), "more than a kernel takes"
            upgrade.send_text(b"y" * 1_000_000)
            return upgrade.queued_messages

        assert served.do(fill) == 2
        assert served.do(lambda: upgrade.queued_bytes) > 1_000_000
        while app.drains == 0:
            # What drains it may have been read before we are told of it.
            if select([wire.sock], [], [], 0.01)[0]:
                assert wire.sock.recv(1 << 20)
        assert served.do(lambda: upgrade.queued_messages) == 0


def test_a_peer_that_pings_and_never_reads_is_not_read_either() -> None:
    patient = Limits(ws_nuisance_burst=1_000_000_000)
    with serving(patient) as served, served.connect() as wire:
        shake_hands(wire)
        wire.sock.setblocking(False)
        pings = frame(Opcode.PING, b"x" * 125) * 1000
        with pytest.raises(BlockingIOError):  # noqa: PT012 - until the kernel's buffers are full
            for _ in range(1000):
                wire.sock.send(pings)
        with dial(served) as other:
            other.send("still here")
            assert other.recv() == "still here"


# Closing


def test_a_close_is_answered_and_reported(served: Served) -> None:
    app = served.app
    with dial(served) as socket:
        socket.close(4001, "bye")
        assert socket.close_code == 4001
    app.wait_until(lambda: app.sockets_closed == [4001])
    app.wait_until(lambda: app.ended == [("/ws", 101)])
    assert served.do(lambda: app.sockets[0].send_text(b"too late")) is False


def test_the_server_can_close_too(served: Served) -> None:
    app = served.app
    with dial(served) as socket:
        app.wait_until(lambda: bool(app.sockets))
        served.do(app.sockets[0].pause_reading)
        served.do(lambda: app.sockets[0].close(1001, "shutting down"))
        with pytest.raises(ConnectionClosed):
            socket.recv()
        assert (socket.close_code, socket.close_reason) == (1001, "shutting down")
    app.wait_until(lambda: app.sockets_closed == [1001])


def test_a_vanished_peer_is_reported_as_abnormal(served: Served) -> None:
    app = served.app
    wire = served.connect()
    shake_hands(wire)
    wire.reset()
    app.wait_until(lambda: app.sockets_closed == [1006] and app.ended == [("/ws", 101)])


def test_a_peer_that_never_answers_a_close_is_given_up() -> None:
    with serving(Limits(linger_s=0.1)) as served, served.connect() as wire:
        shake_hands(wire)
        served.app.wait_until(lambda: bool(served.app.sockets))
        served.do(served.app.sockets[0].close)
        served.wait_for_no_connections()
        assert read_close(wire) == 1000


def test_a_failing_handler_closes_with_1011(served: Served) -> None:
    app = served.app
    with dial(served) as socket:
        app.wait_until(lambda: bool(app.sockets))

        def fail(message: bytes) -> None:
            raise RuntimeError("boom")

        served.do(lambda: setattr(app.sockets[0], "on_text", fail))
        socket.send("x")
        with pytest.raises(ConnectionClosed):
            socket.recv()
        assert socket.close_code == 1011


@pytest.mark.parametrize(
    ("start", "opcode", "fin"),
    [
        (frame(Opcode.TEXT, b"x", fin=False), Opcode.CONT, False),
        (frame(Opcode.BINARY, b"", fin=False), Opcode.CONT, False),
        (b"", Opcode.PING, True),
        (b"", Opcode.PONG, True),
    ],
    ids=["fragments", "empty fragments", "pings", "pongs"],
)
def test_frames_that_come_to_no_message_are_sent_away(
    touchy: Served, start: bytes, opcode: Opcode, fin: bool
) -> None:
    payload = b"" if b"\x02" in start[:1] else b"p"
    with touchy.connect() as wire:
        shake_hands(wire)
        wire.send(start + frame(opcode, payload, fin=fin) * 1000)
        while (head := wire.file.read(2))[0] == 0x8A:
            wire.file.read(head[1])  # answers to the first pings
        assert head[0] == 0x88
        assert wire.file.read(head[1])[:2] == (1008).to_bytes(2, "big")


def test_a_long_message_in_fragments_of_some_size_is_no_nuisance(touchy: Served) -> None:
    with dial(touchy) as socket:
        socket.send(iter(["x" * 1024] * 1000))
        assert len(socket.recv()) == 1024 * 1000

"""Streams of HTTP/1.1: in line, in order, and honest about a peer that falls behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.http.transports import HandFed

from topics.http.h1.connection import H1Connection
from topics.http.h1.exchange import H1Stream
from topics.http.h1.wire import LAST_CHUNK, chunk
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response, Stream

ROOM = 100
"""Bytes a peer that does not read leaves to the transport before it says so."""


class Wire(HandFed):
    """A transport whose peer may stop reading."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: H1Connection
        self.sent: list[bytes] = []
        self.stalled = False
        self._waiting: list[bytes] = []
        self._paused = False

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        assert not self.closing
        if not self.stalled:
            self.sent.append(data)
            return
        self._waiting.append(data)
        if not self._paused and self.get_write_buffer_size() > ROOM:
            self._paused = True
            self.connection.pause_writing()

    def catch_up(self) -> None:
        """The peer reads again, and takes everything."""
        self.stalled = False
        self.sent += self._waiting
        self._waiting.clear()
        if self._paused:
            self._paused = False
            self.connection.resume_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._waiting))

    def news(self) -> bytes:
        """What the peer got since the last look."""
        sent, self.sent = self.sent, []
        return b"".join(sent)


class Desk:
    """Opens a stream for everybody who asks for one."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.waiting: list[Reply] = []
        self.on_open: Callable[[], None] | None = None

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == b"/later":
            self.waiting.append(reply)
            return
        if self.on_open is not None:
            self.on_open()
        self.streams.append(reply.stream(content_type=b"text/event-stream"))

    def end(self, request: Request, status: int | None) -> None:
        pass


class Talk:
    """One connection and what came of it."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.loop = asyncio.new_event_loop()
        self.hub = Hub(self.desk, Limits(), self.loop)
        self.wire = Wire()
        self.connection = self.wire.connection = H1Connection(self.hub, self.wire, "peer")
        self._lost = False

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *failure: object) -> None:
        self.lose()
        self.hub.stop()
        self.loop.close()

    def lose(self) -> None:
        """The connection is gone."""
        if not self._lost:
            self._lost = True
            self.connection.connection_lost(None)

    def ask(self, path: str = "/stream", version: str = "1.1") -> None:
        self.connection.data_received(f"GET {path} HTTP/{version}\r\nHost: t\r\n\r\n".encode())

    def open(self) -> Stream:
        """A stream whose head has left."""
        self.ask()
        assert self.wire.news().endswith(b"\r\n\r\n")
        return self.desk.streams[-1]


def drains(stream: Stream) -> list[str]:
    """Fills with every drain."""
    seen: list[str] = []
    stream.on_drain = lambda: seen.append("drained")
    return seen


def test_every_piece_is_a_chunk_and_leaves_at_once() -> None:
    with Talk() as talk:
        stream = talk.open()
        for piece in (b"one", b"two"):
            assert stream.write(piece)
            assert talk.wire.news() == chunk(piece)


def test_an_empty_piece_does_not_end_the_body() -> None:
    with Talk() as talk:
        stream = talk.open()
        assert stream.write(b"")
        assert talk.wire.news() == b""


def test_streams_given_the_same_piece_send_the_very_same_bytes() -> None:
    with Talk() as talk:
        other = Wire()
        other.connection = H1Connection(talk.hub, other, "peer")
        other.connection.data_received(b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\n")
        stream, piece = talk.open(), b"the same for all"
        for each in (stream, talk.desk.streams[0]):
            each.write(piece)
        assert talk.wire.sent[-1] is other.sent[-1]
        other.connection.connection_lost(None)


def test_a_body_of_http_1_0_has_no_chunks_and_ends_with_the_connection() -> None:
    with Talk() as talk:
        talk.ask(version="1.0")
        talk.wire.news()
        (stream,) = talk.desk.streams
        assert stream.write(b"one")
        stream.close()
        assert talk.wire.news() == b"one"
        assert talk.wire.closing


# A peer that falls behind


def test_the_write_that_is_too_much_for_the_peer_says_so_and_a_drain_follows() -> None:
    with Talk() as talk:
        stream = talk.open()
        drained = drains(stream)
        talk.wire.stalled = True
        assert stream.write(b"a" * 10)
        assert not stream.write(b"b" * ROOM)
        assert not stream.write(b"c")
        assert stream.queued_bytes > ROOM
        assert drained == []
        talk.wire.catch_up()
        assert drained == ["drained"]
        assert stream.write(b"d")
        pieces = (b"a" * 10, b"b" * ROOM, b"c", b"d")
        assert talk.wire.news() == b"".join(map(chunk, pieces))


def test_a_single_write_that_is_too_much_is_drained_too() -> None:
    with Talk() as talk:
        stream = talk.open()
        drained = drains(stream)
        talk.wire.stalled = True
        assert not stream.write(b"a" * ROOM)
        talk.wire.catch_up()
        assert drained == ["drained"]


def test_a_stream_has_its_transport_while_it_is_at_the_head_and_its_peer_keeps_up() -> None:
    with Talk() as talk:
        first = talk.open()
        talk.ask()

        def ways() -> list[object]:
            return [stream.way for stream in talk.desk.streams if isinstance(stream, H1Stream)]

        assert ways() == [talk.wire, None]
        talk.connection.pause_writing()
        assert ways() == [None, None]
        talk.connection.resume_writing()
        assert ways() == [talk.wire, None]
        first.close()
        assert ways() == [None, talk.wire]


def test_a_peer_found_behind_between_two_writes_is_told_of_by_the_second() -> None:
    with Talk() as talk:
        stream = talk.open()
        drained = drains(stream)
        talk.connection.pause_writing()
        assert not stream.write(b"one")
        talk.connection.resume_writing()
        assert drained == ["drained"]
        assert stream.write(b"two")
        assert talk.wire.news() == chunk(b"one") + chunk(b"two")


def test_a_peer_that_was_behind_unnoticed_makes_no_drain() -> None:
    with Talk() as talk:
        stream = talk.open()
        drained = drains(stream)
        talk.connection.pause_writing()
        talk.connection.resume_writing()
        assert drained == []
        assert stream.write(b"one")


# Its turn in the line


def test_pieces_of_a_stream_wait_for_the_answer_before_it() -> None:
    with Talk() as talk:
        talk.ask("/later")
        talk.ask("/stream")
        assert talk.desk.streams == [], "a later request of another kind has to wait"
        talk.desk.waiting[0](Response(200, b"first"))
        (stream,) = talk.desk.streams
        stream.write(b"second")
        sent = talk.wire.news()
        assert sent.index(b"first") < sent.index(chunk(b"second"))


def test_of_two_streams_on_one_connection_the_second_waits_for_the_end_of_the_first() -> None:
    with Talk() as talk:
        first = talk.open()
        talk.ask()
        second = talk.desk.streams[1]
        second.write(b"two")
        assert second.queued_bytes > 0
        first.write(b"one")
        assert talk.wire.news() == chunk(b"one")
        first.close()
        assert second.write(b"three")
        end, _, body = talk.wire.news().partition(b"HTTP/1.1 200 OK")
        assert end == LAST_CHUNK
        assert body.endswith(b"\r\n\r\n" + chunk(b"two") + chunk(b"three"))


def test_a_stream_that_comes_to_the_head_while_the_peer_is_behind_waits_for_the_drain() -> None:
    with Talk() as talk:
        first = talk.open()
        talk.ask()
        second = talk.desk.streams[1]
        drained = drains(second)
        talk.wire.stalled = True
        first.write(b"x" * (ROOM + 1))
        first.close()
        assert not second.write(b"two")
        talk.wire.catch_up()
        assert drained == ["drained"]
        assert second.write(b"three")
        assert talk.wire.news().endswith(chunk(b"two") + chunk(b"three"))


def test_a_stream_that_a_pipelined_request_ends_says_its_last_words_first() -> None:
    with Talk() as talk:
        first = talk.open()

        def supersede() -> None:
            talk.desk.on_open = None
            first.write(b"bye")
            first.close()

        talk.desk.on_open = supersede
        talk.ask()
        talk.desk.streams[1].write(b"hello")
        sent = talk.wire.news()
        assert sent.startswith(chunk(b"bye") + LAST_CHUNK + b"HTTP/1.1 200 OK")
        assert sent.endswith(chunk(b"hello"))


# The end


def test_a_closed_stream_takes_nothing_more() -> None:
    with Talk() as talk:
        stream = talk.open()
        stream.close()
        stream.close()
        assert not stream.write(b"late")
        talk.loop.run_until_complete(asyncio.sleep(0))
        assert talk.wire.news() == LAST_CHUNK


def test_what_is_written_to_a_connection_about_to_close_is_dropped() -> None:
    with Talk() as talk:
        stream = talk.open()
        talk.wire.closing = True
        stream.write(b"one")
        assert talk.wire.news() == b""


def test_a_stream_whose_peer_has_gone_is_told_and_takes_nothing_more() -> None:
    with Talk() as talk:
        stream = talk.open()
        closed: list[str] = []
        stream.on_close = lambda: closed.append("closed")
        talk.lose()
        assert closed == ["closed"]
        assert not stream.write(b"late")
        assert talk.wire.news() == b""

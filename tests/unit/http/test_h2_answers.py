"""Long answers over HTTP/2: how many writes they take, and that windows hold all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection as Library
from h2.events import DataReceived, ResponseReceived
from h2.settings import SettingCodes
from tests.unit.http.transports import HandFed

from topics.http.h2.connection import H2Connection
from topics.http.hub import Hub
from topics.http.limits import Limits
from topics.http.messages import Reply, Request, Response, Spliced

LIMITS = Limits(high_water_bytes=100_000)
PARTS = (b"[", bytes(range(256)) * 200, b"]")
BODY = b"".join(PARTS)
WIDE = 2**30


class Wire(HandFed):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, as in the base class
        self.writes.append(bytes(data))


class Teller:
    """Answers with the body of these tests, so many times as the path says."""

    def begin(self, request: Request) -> Response | None:
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        reply(Spliced(PARTS * int(request.path[1:])))

    def end(self, request: Request, status: int | None) -> None:
        pass


class Verbose(Teller):
    """Answers with a header and a body that are as long as the path says."""

    def __call__(self, request: Request, reply: Reply) -> None:
        head_bytes, body_bytes = map(int, request.path[1:].split(b"+"))
        reply(Response(200, b"b" * body_bytes, headers=((b"x-long", b"~" * head_bytes),)))


class Client:
    """The other end, by the library."""

    def __init__(self, hub: Hub, *, window: int) -> None:
        self.wire = Wire()
        self.connection = H2Connection(hub, self.wire, "")
        self.library = Library(H2Configuration(header_encoding=None))
        self.bodies: dict[int, bytes] = {}
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self.library.initiate_connection()
        self.library.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        if window == WIDE:
            self.library.increment_flow_control_window(WIDE)
        self.send()

    def ask(self, *times: object) -> list[bytes]:
        """The answers' bodies to so many requests at once, as far as they have come."""
        asked = []
        for count in times:
            stream_id = self.library.get_next_available_stream_id()
            head = [(":method", "GET"), (":path", f"/{count}"), (":scheme", "http")]
            self.library.send_headers(stream_id, [*head, (":authority", "x")], end_stream=True)
            asked.append(stream_id)
        self.send()
        return [self.bodies.get(stream_id, b"") for stream_id in asked]

    def send(self) -> None:
        """Say what there is to say and read what comes back."""
        self.wire.writes.clear()
        self.connection.data_received(self.library.data_to_send())
        for written in self.wire.writes:
            for event in self.library.receive_data(written):
                if isinstance(event, DataReceived):
                    known = self.bodies.get(event.stream_id, b"")
                    self.bodies[event.stream_id] = known + event.data
                elif isinstance(event, ResponseReceived):
                    self.heads[event.stream_id] = dict(event.headers)


def with_client(
    talk: Callable[[Client], None], *, window: int = WIDE, app: type[Teller] = Teller
) -> None:
    async def run() -> None:
        hub = Hub(app(), LIMITS, asyncio.get_running_loop())
        try:
            talk(Client(hub, window=window))
        finally:
            hub.stop()

    asyncio.run(run())


def test_an_answer_of_many_frames_leaves_in_one_write_however_many_came_before() -> None:
    def talk(client: Client) -> None:
        for _ in range(5):
            assert client.ask(1) == [BODY]
            assert len(client.wire.writes) == 1

    with_client(talk)


def test_long_answers_to_requests_in_one_piece_all_arrive() -> None:
    with_client(lambda client: assert_equal(client.ask(1, 1, 1), [BODY] * 3))


def test_an_answer_beyond_the_high_water_mark_arrives_too() -> None:
    with_client(lambda client: assert_equal(client.ask(3, 1), [BODY * 3, BODY]))


def test_an_answer_longer_than_the_window_goes_as_far_as_the_window() -> None:
    def talk(client: Client) -> None:
        assert client.ask(1) == [BODY[:20_000]]
        assert client.ask(1) == [BODY[:20_000]]
        for stream_id in client.bodies:
            client.library.increment_flow_control_window(40_000, stream_id)
        client.library.increment_flow_control_window(100_000)
        client.send()
        assert list(client.bodies.values()) == [BODY, BODY]

    with_client(talk, window=20_000)


@pytest.mark.parametrize("body_bytes", [0, 10, 50_000, 150_000])
def test_headers_larger_than_a_frame_arrive_and_leave_the_next_answers_readable(
    body_bytes: int,
) -> None:
    """However an answer leaves, whole or in turns: what it could not be sent as leaves no trace."""
    sizes = [16_500, 20, 16_500, 16_384, 40_000, 40_000, 20]

    def talk(client: Client) -> None:
        for table_bytes in (1 << 20, 0, 4096):
            client.library.update_settings({SettingCodes.HEADER_TABLE_SIZE: table_bytes})
            client.heads.clear()
            found = client.ask(*[f"{size}+{body_bytes}" for size in sizes])
            assert found == [b"b" * body_bytes] * len(sizes)
            assert [head[b"x-long"] for head in client.heads.values()] == [b"~" * n for n in sizes]
            lengths = {head[b"content-length"] for head in client.heads.values()}
            assert lengths == {b"%d" % body_bytes}

    with_client(talk, app=Verbose)


def assert_equal(found: object, expected: object) -> None:
    assert found == expected


class Patient(Teller):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Reply] = []

    def __call__(self, request: Request, reply: Reply) -> None:
        self.waiting.append(reply)


def test_of_many_long_answers_that_come_at_once_and_are_not_read_few_are_kept() -> None:
    async def run() -> None:
        app = Patient()
        limits = Limits(h2_max_queued_bytes=len(BODY))
        hub = Hub(app, limits, asyncio.get_running_loop())
        client = Client(hub, window=0)
        client.ask(*range(40))
        for reply in app.waiting[:-1]:
            reply(Spliced(PARTS))
        app.waiting[-1](Response(200, b"short"))
        client.library.increment_flow_control_window(WIDE)
        client.library.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WIDE})
        client.send()
        *kept, last = client.bodies.values()
        assert last == b"short", "what is short costs nothing to keep"
        assert kept == [BODY] * len(kept)
        assert 8 <= len(kept) <= 10
        assert app.waiting[20].gone  # type: ignore[attr-defined]  # an exchange, to the test
        hub.stop()

    asyncio.run(run())

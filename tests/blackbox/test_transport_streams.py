"""Answers written over time: framing, back-pressure, and noticing that the reader has left."""

from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import httpx
import pytest
from tests.blackbox.transport_server import WAIT_S, Served, serving

from topics.http.messages import Stream

MORE_THAN_A_KERNEL_TAKES = b"x" * 20_000_000


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


@pytest.fixture(params=["1.1", "2"])
def client(served: Served, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    two = request.param == "2"
    with httpx.Client(base_url=served.url, http1=not two, http2=two, timeout=WAIT_S) as own:
        yield own


def opened(served: Served) -> Stream:
    served.app.wait_until(lambda: bool(served.app.streams))
    return served.app.streams[0]


def test_each_write_arrives_as_it_is_written(served: Served, client: httpx.Client) -> None:
    with client.stream("GET", "/stream") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert "content-length" not in answer.headers
        stream = opened(served)
        lines = answer.iter_lines()
        for number in range(3):
            assert served.do(lambda n=number: stream.write(b"data: %d\n" % n))  # type: ignore[misc]
            assert next(lines) == f"data: {number}"
        served.do(stream.close)
        assert list(lines) == []
    served.app.wait_until(lambda: served.app.ended == [("/stream", 200)])
    assert served.app.streams_closed == 0
    assert client.get("/ok").status_code == 200


def test_a_stream_is_never_compressed(served: Served, client: httpx.Client) -> None:
    with client.stream("GET", "/stream", headers={"accept-encoding": "gzip"}) as answer:
        stream = opened(served)
        served.do(lambda: stream.write(b"x" * 5000))
        served.do(stream.close)
        assert answer.read() == b"x" * 5000
        assert "content-encoding" not in answer.headers


def test_a_reader_that_leaves_closes_the_stream(served: Served, client: httpx.Client) -> None:
    with client.stream("GET", "/stream"):
        stream = opened(served)
    client.close()
    served.app.wait_until(lambda: served.app.streams_closed == 1)
    served.app.wait_until(lambda: served.app.ended == [("/stream", 200)])
    assert served.do(lambda: stream.write(b"too late")) is False
    served.do(stream.close)
    assert served.app.streams_closed == 1


def test_a_slow_reader_is_reported_and_so_is_its_catching_up(
    served: Served, client: httpx.Client
) -> None:
    with client.stream("GET", "/stream") as answer:
        stream = opened(served)
        assert served.do(lambda: stream.write(MORE_THAN_A_KERNEL_TAKES)) is False
        assert served.do(lambda: stream.queued_bytes) > 256 * 1024
        assert served.do(lambda: stream.write(b"y")) is False
        body = answer.iter_raw()
        received = bytearray()
        while len(received) <= len(MORE_THAN_A_KERNEL_TAKES):
            received += next(body)
        assert received == MORE_THAN_A_KERNEL_TAKES + b"y"
        served.app.wait_until(lambda: served.app.drains > 0)
        assert served.do(lambda: stream.queued_bytes) == 0
        assert served.do(lambda: stream.write(b"z")) is True
        served.do(stream.close)
        for _ in body:
            pass


def test_head_of_a_stream_has_no_body_and_ends_at_once(
    served: Served, client: httpx.Client
) -> None:
    answer = client.head("/stream")
    assert answer.headers["content-type"] == "text/event-stream"
    served.app.wait_until(lambda: served.app.streams_closed == 1)
    assert served.do(lambda: served.app.streams[0].write(b"x")) is False
    assert client.get("/ok").status_code == 200


def test_a_chunk_is_framed_once_for_all_watchers(served: Served) -> None:
    with served.connect() as one, served.connect() as two:
        for wire in (one, two):
            wire.get("/stream")
        served.app.wait_until(lambda: len(served.app.streams) == 2)
        frame = b"data: shared\n\n"
        served.do(lambda: [stream.write(frame) for stream in served.app.streams])
        for wire in (one, two):
            assert wire.read_head()[1]["transfer-encoding"] == "chunked"
            assert wire.read_chunk() == frame


def test_an_http_1_0_stream_ends_with_its_connection(served: Served) -> None:
    with served.connect() as wire:
        wire.send(b"GET /stream HTTP/1.0\r\n\r\n")
        stream = opened(served)
        served.do(lambda: stream.write(b"plain"))
        served.do(stream.close)
        status, headers = wire.read_head()
        assert (status, headers["connection"]) == (200, "close")
        assert "transfer-encoding" not in headers
        assert wire.file.read() == b"plain"


def test_a_pipelined_request_waits_for_the_end_of_a_stream(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/stream")
        wire.get("/ok")
        stream = opened(served)
        served.do(lambda: stream.write(b"only"))
        served.do(stream.close)
        wire.read_head()
        assert wire.read_chunk() == b"only"
        assert wire.read_chunk() == b""
        assert wire.read().body == b"{}"


def test_streams_of_one_target_on_one_connection_follow_each_other(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        wire.get("/stream")
        wire.get("/stream")
        app.wait_until(lambda: len(app.streams) == 2)
        first, second = app.streams
        served.do(lambda: second.write(b"later"))
        assert served.do(lambda: second.queued_bytes) > 0
        served.do(second.close)
        served.do(lambda: first.write(b"sooner"))
        served.do(first.close)
        for expected in (b"sooner", b"later"):
            wire.read_head()
            assert wire.read_chunk() == expected
            assert wire.read_chunk() == b""


def test_end_of_input_ends_a_stream(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/stream")
        opened(served)
        wire.half_close()
        served.app.wait_until(lambda: served.app.streams_closed == 1)


def test_a_stream_blocked_by_its_window_does_not_block_its_neighbours(served: Served) -> None:
    config = h2.config.H2Configuration(client_side=True)
    peer = h2.connection.H2Connection(config)
    peer.initiate_connection()
    with served.connect() as wire:

        def ask(stream_id: int, path: str) -> None:
            head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "t")]
            peer.send_headers(stream_id, head, end_stream=True)
            wire.send(peer.data_to_send())

        ask(1, "/stream")
        stream = opened(served)
        served.do(lambda: stream.write(b"x" * 40_000))
        ask(3, "/ok")
        done = set()
        while 3 not in done:
            for event in peer.receive_data(wire.sock.recv(1 << 16)):
                if isinstance(event, h2.events.StreamEnded):
                    done.add(event.stream_id)

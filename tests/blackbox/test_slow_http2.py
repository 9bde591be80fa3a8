"""A reader that stops reading over HTTP/2: its windows close, everybody else goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import gauge, put, wait_until_gauge, watch, write

RECORDS = 40
PAYLOAD = "x" * 500_000
WIDE_OPEN = 1 << 30


class Reader:
    """Two streams on one connection; the windows are ours to open."""

    def __init__(self, server: ServerProcess) -> None:
        self._sock = socket.create_connection((server.host, server.port), timeout=PATIENCE_S)
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WIDE_OPEN)  # of the connection, not of its streams
        self.received: dict[int, bytearray] = {}

    def close(self) -> None:
        self._sock.close()

    def open(self, path: str) -> int:
        stream_id = self._h2.get_next_available_stream_id()
        head = [
            (":method", "GET"),
            (":path", path),
            (":scheme", "http"),
            (":authority", "localhost"),
        ]
        self._h2.send_headers(stream_id, head, end_stream=True)
        self.received[stream_id] = bytearray()
        self.flush()
        return stream_id

    def widen(self, stream_id: int) -> None:
        self._h2.increment_flow_control_window(WIDE_OPEN, stream_id)
        self.flush()

    def flush(self) -> None:
        self._sock.sendall(self._h2.data_to_send())

    def read_until(self, stream_id: int, end: bytes) -> bytes:
        """Everything this stream has sent, once these bytes are in it; heartbeats may follow."""
        text = self.received[stream_id]
        while end not in text[-1000:]:
            data = self._sock.recv(1 << 20)
            assert data, "a slow reader is never thrown out"
            for event in self._h2.receive_data(data):
                if isinstance(event, DataReceived):
                    self.received[event.stream_id] += event.data
            self.flush()
        return bytes(text)


@pytest.fixture
def reader(shared_server: ServerProcess) -> Iterator[Reader]:
    made = Reader(shared_server)
    yield made
    made.close()


def test_a_stream_nobody_reads_over_http2_holds_up_neither_its_neighbour_nor_the_server(
    shared_server: ServerProcess, reader: Reader
) -> None:
    server = shared_server
    put(server, "slow")
    put(server, "quick")
    lagged = gauge(server, "streams_lagged_total")
    slow = reader.open(watch(server, "slow")["stream_url"])
    quick = reader.open(watch(server, "quick")["stream_url"])
    reader.widen(quick)
    for number in range(RECORDS):
        write(server, "slow", [number, PAYLOAD])
    wait_until_gauge(server, "streams_lagged_total", lagged + 1)
    write(server, "quick", "still here")
    assert b'"data":"still here"' in reader.read_until(quick, b'"head_seq":1}\n\n')
    reader.widen(slow)
    text = reader.read_until(slow, b'"head_seq":%d}\n\n' % RECORDS)
    assert text.count(b"slow_consumer") == 1
    places = [text.find(b'"data":[%d,"xxx' % number) for number in range(RECORDS)]
    assert -1 not in places
    assert places == sorted(places)
    assert text.count(b'"data":[') == RECORDS, "each once"

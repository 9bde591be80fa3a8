"""Clients that leave at any byte, in any version: nothing of them stays behind."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import pytest
from tests.blackbox.api_client import Api, eventually
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import watch

BODY = b'{"records":[{"data":{"some":"thing"},"tag":"t"}]}'
WRITE = (
    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
CHUNKED = (
    b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n10\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (BODY[:16], len(BODY) - 16, BODY[16:])
)
POLL = (
    b"POST /v0/topics/quiet/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"wait_ms":30000}'
)
UPGRADE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(b"k" * 16)
)


def ws_frame(text: bytes) -> bytes:
    """A masked text frame with a mask of zeros."""
    assert len(text) < 126
    return bytes((0x81, 0x80 | len(text))) + b"\0\0\0\0" + text


SUBSCRIBE = UPGRADE + ws_frame(b'{"op":"subscribe","topic":"quiet"}')


def h2_write() -> bytes:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    headers = [
        (":method", "POST"),
        (":path", "/v0/topics/t"),
        (":scheme", "http"),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ]
    connection.send_headers(1, headers)
    connection.send_data(1, BODY, end_stream=True)
    sent: bytes = connection.data_to_send()
    return sent


def follow(server: ServerProcess) -> bytes:
    path = watch(server, "quiet")["stream_url"]
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.fixture(scope="module")
def settled(shared_server: ServerProcess) -> Iterator[Api]:
    client = Api(shared_server)
    client.write("t", 1)
    client.make("quiet")
    yield client
    client.close()


def open_files(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def sockets(server: ServerProcess) -> int:
    found = 0
    for entry in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(entry).startswith("socket:")
    return found


def leave(server: ServerProcess, sent: bytes, *, how: str, listen: bool = False) -> None:
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as peer:
        peer.sendall(sent)
        if listen:
            peer.recv(10)
        if how == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


CASES = {
    "write": WRITE,
    "chunked": CHUNKED,
    "poll": POLL,
    "websocket": SUBSCRIBE,
    "http2": h2_write(),
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("case", [*CASES, "stream"])
def test_a_client_that_leaves_at_any_byte_leaves_nothing(
    shared_server: ServerProcess, settled: Api, case: str, how: str
) -> None:
    sent = CASES[case] if case in CASES else follow(shared_server)
    before = sockets(shared_server)
    # Every byte of what is short, and of the rest the ends and a sample of the middle.
    cuts = range(len(sent) + 1) if len(sent) < 150 else [*range(0, len(sent), 3), len(sent)]
    for cut in cuts:
        leave(shared_server, sent[:cut], how=how)
    whole = sent if case != "poll" else sent + WRITE
    if case not in ("poll", "http2"):
        leave(shared_server, whole, how=how, listen=True)
    eventually(lambda: sockets(shared_server), lambda found: found <= before)
    eventually(settled.metrics, _is_at_rest)
    assert shared_server.is_running


def _is_at_rest(numbers: dict[str, Any]) -> bool:
    return not numbers["sse_connections"] and not numbers["wal"]["queue_depth"]


def test_many_clients_leaving_leave_no_files_open(
    shared_server: ServerProcess, settled: Api
) -> None:
    leave(shared_server, WRITE, how="close", listen=True)
    before = open_files(shared_server)
    for number in range(200):
        sent = (WRITE, POLL, SUBSCRIBE, h2_write())[number % 4]
        leave(shared_server, sent, how=("close", "reset")[number % 2])
    eventually(lambda: open_files(shared_server), lambda found: found <= before + 2)
    eventually(settled.metrics, _is_at_rest)


def test_a_write_cut_short_is_never_half_done(shared_server: ServerProcess, settled: Api) -> None:
    settled.make("whole")
    wanted = [{"data": number} for number in range(5)]
    body = json.dumps({"records": wanted}).encode()
    head = (
        b"POST /v0/topics/whole HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    for cut in range(0, len(head) + len(body), 5):
        leave(shared_server, (head + body)[:cut], how="reset")
    assert settled.state("whole")["head_seq"] == 0
    for _ in range(5):
        leave(shared_server, head + body, how="close")
    state = eventually(lambda: settled.state("whole"), lambda found: found["head_seq"] == 25)
    assert state["count"] == 25

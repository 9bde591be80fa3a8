"""A body of many mebibytes is taken in while others are served."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import httpx
import pytest
from tests.blackbox.api_client import VERSIONS
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from websockets.sync.client import connect

COUNT = 8000
ROW = b'{"topic":"bulk","data":{"name":"%05d","values":[' + b"1.25,2.5," * 440 + b"0]}}"
SERVED = 10
LONGEST_SHARE = 0.5
"""Some 300 requests are served meanwhile, none in more than a twentieth of the time; if the body
were decoded in one go, it would be one of them that waits for most of it."""
ASKED_BEFORE = 100
"""By then the server has read what is on its way."""
CHUNK = 1 << 16


@pytest.fixture(scope="module")
def body() -> bytes:
    made = b'{"records":[%b]}' % b",".join([ROW % number for number in range(COUNT)])
    assert 30 << 20 < len(made) < 64 << 20
    return made


class Sending:
    """A long body on its way, of which the end is held back until told."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_nearly_sent = threading.Event()
        self.may_end = threading.Event()

    def chunks(self) -> Iterator[bytes]:
        last = len(self._body) - CHUNK
        for at in range(0, last, CHUNK):
            yield self._body[at : min(at + CHUNK, last)]
        self.is_nearly_sent.set()
        assert self.may_end.wait(PATIENCE_S)
        yield self._body[last:]

    def texts(self) -> Iterator[str]:
        return (chunk.decode() for chunk in self.chunks())


class Meanwhile(NamedTuple):
    """What became of the requests of another client."""

    served: int
    longest_share: float
    """The longest wait for an answer, as a share of the time all of them took."""

    def check(self) -> None:
        assert self.served >= SERVED
        assert self.longest_share < LONGEST_SHARE


def write_one(other: httpx.Client) -> None:
    other.post("/v0/topics/small", json={"records": [{"data": 1}]}).raise_for_status()


def served_meanwhile(
    server: ServerProcess, sending: Sending, send: Callable[[], dict[str, object]]
) -> tuple[Meanwhile, dict[str, object]]:
    """Send it; what became of another client's requests between its end and its answer."""
    with (
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(send)
        assert sending.is_nearly_sent.wait(PATIENCE_S)
        for _ in range(ASKED_BEFORE):
            write_one(other)
        sending.may_end.set()
        moments = [time.monotonic()]
        while not answer.done():
            write_one(other)
            moments.append(time.monotonic())
        waits = [after - before for before, after in pairwise(moments)]
        print(f"{len(waits)} served, the slowest in {max(waits):.3f} of {sum(waits):.3f} s")
        return Meanwhile(len(waits) - 1, max(waits) / sum(waits)), answer.result()


def posted(
    server: ServerProcess, path: str, sending: Sending, version: str = VERSIONS[0]
) -> dict[str, object]:
    is_h2 = version == "HTTP/2"
    with httpx.Client(
        base_url=server.url, timeout=PATIENCE_S, http1=not is_h2, http2=is_h2, trust_env=False
    ) as http:
        headers = {"content-type": "application/json"}
        answer = http.post(path, content=sending.chunks(), headers=headers)
        found: dict[str, object] = answer.raise_for_status().json()
        return found


def names(server: ServerProcess) -> list[str]:
    """The first and the last record of the topic."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        head = http.get("/v0/topics/bulk").json()["head_seq"]
        found = []
        for seq in (head - COUNT, head - 1):
            page = http.post("/v0/topics/bulk/diff", json={"from_seq": seq, "limit": 1}).json()
            found += [record["data"]["name"] for record in page["records"]]
        return found


@pytest.mark.parametrize("version", VERSIONS)
def test_others_are_served_beside_a_long_write(
    server: ServerProcess, body: bytes, version: str
) -> None:
    sending = Sending(body)
    meanwhile, answer = served_meanwhile(
        server,
        sending,
        lambda: posted(server, "/v0/topics/bulk?return_seqs=false", sending, version),
    )
    assert answer["count"] == COUNT
    assert names(server) == ["00000", f"{COUNT - 1:05d}"]
    meanwhile.check()


def test_others_are_served_beside_a_long_stage(server: ServerProcess, body: bytes) -> None:
    sending = Sending(body)
    path = "/v0/stages/app/1/0/0"
    meanwhile, answer = served_meanwhile(server, sending, lambda: posted(server, path, sending))
    assert answer["records"] == COUNT
    httpx.post(
        f"{server.url}/v0/stages/app/1/commit", json={"parts": [[0, 0]]}, timeout=PATIENCE_S
    ).raise_for_status()
    assert names(server) == ["00000", f"{COUNT - 1:05d}"]
    meanwhile.check()


def test_others_are_served_beside_a_long_publish(server: ServerProcess, body: bytes) -> None:
    sending = Sending(b'{"op":"publish","topic":"bulk","return_seqs":false,' + body[1:])

    def publish() -> dict[str, object]:
        url = f"ws://{server.address}/v0/ws"
        with connect(url, max_size=None, compression=None) as ws:
            ws.send(sending.texts())
            found: dict[str, object] = json.loads(ws.recv(PATIENCE_S))
            return found

    meanwhile, answer = served_meanwhile(server, sending, publish)
    assert (answer["op"], answer["count"]) == ("ack", COUNT)
    assert names(server) == ["00000", f"{COUNT - 1:05d}"]
    meanwhile.check()


def test_clients_that_hang_up_in_the_middle_stop_nobody(server: ServerProcess, body: bytes) -> None:
    head = b"POST /v0/topics/bulk HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
    for sent in (len(whole) // 2, len(whole) - 1, len(whole), len(whole)):
        with socket.create_connection((server.host, server.port), PATIENCE_S) as line:
            line.sendall(memoryview(whole)[:sent])
    sending = Sending(body)
    sending.may_end.set()
    path = "/v0/topics/bulk?return_seqs=false"
    answer = posted(server, path, sending)
    assert answer["count"] == COUNT
    last = answer["last_seq"]
    assert isinstance(last, int)
    assert last % COUNT == 0, "each write is whole or not there"
    assert names(server) == ["00000", f"{COUNT - 1:05d}"]

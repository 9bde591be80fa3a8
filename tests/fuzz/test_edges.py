"""A real server under rubbish: it never dies, never hangs, never says 500, never grows.

Every edge where bytes of strangers come in has its own run: HTTP/1, HTTP/2 frames, WebSocket
frames, JSON bodies. Inputs come from a grammar and are then damaged. After its input a client
ends its side, so everything has to be over soon, whatever it was. A run prints its seed;
`TOPICS_FUZZ_SEED` repeats it, `TOPICS_FUZZ_SECONDS` makes all four together longer than 20 s.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from select import select

import httpx
import pytest
from tests.blackbox.conftest import ServerProcess
from tests.fuzz import grammar
from tests.fuzz.mutation import mutated, pieces
from tests.seeds import seed_for

SECONDS = float(os.environ.get("TOPICS_FUZZ_SECONDS", "20")) / 4
SEED = seed_for("TOPICS_FUZZ_SEED")
AGAIN = f"TOPICS_FUZZ_SEED={SEED} .venv/bin/python -m pytest tests/fuzz/test_edges.py"
PATIENCE_S = 60.0
LINGER_S = 0.003
MAX_GROWTH_MIB = 64
CHECK_EVERY = 200
SETTINGS = {
    "TOPICS_MAX_TOPICS": "40",
    "TOPICS_MAX_ROUTERS": "10",
    "TOPICS_MAX_TOTAL_BYTES": "4000000",
    "TOPICS_MAX_BODY_BYTES": "1000000",
    "TOPICS_MAX_WATCH_SESSIONS": "50",
    "TOPICS_MAX_STAGE_BYTES": "2000000",
    "TOPICS_TEST_MIN_HEARTBEAT_MS": "50",
}
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("fuzzed"), SETTINGS, ()).start()
    for topic, config in (("t", {}), ("q", {"type": "queue"})):
        httpx.put(
            f"{process.url}/v0/topics/{topic}", json=config, timeout=PATIENCE_S
        ).raise_for_status()
    yield process
    process.end()


def http1(random: Random) -> bytes:
    requests = [grammar.request(random) for _ in range(random.choice((1, 1, 2, 4)))]
    whole = b"".join(requests)
    return mutated(random, [whole]) if random.random() < 0.6 else whole


def http2(random: Random) -> bytes:
    session = grammar.h2_session(random)
    return mutated(random, [session]) if random.random() < 0.4 else session


def websocket(random: Random) -> bytes:
    session = grammar.ws_session(random)
    return mutated(random, [session]) if random.random() < 0.3 else session


def json_bodies(random: Random) -> bytes:
    """Well-formed requests that carry whatever a grammar and some damage make of a document."""
    sent = b""
    for _ in range(random.randrange(1, 6)):
        method, path, needed = random.choice(grammar.CALLS)
        body = grammar.document(random, needed or ())
        headers = [
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        sent += grammar.head(method, path.format(*random.choices("tqn", k=2)), headers) + body
    return sent


@pytest.mark.parametrize("edge", [http1, http2, websocket, json_bodies])
def test_rubbish_neither_kills_nor_hangs_nor_grows_the_server(
    server: ServerProcess,
    edge: Callable[[Random], bytes],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    random = Random(f"{edge.__name__} {SEED}")
    deadline = time.monotonic() + SECONDS
    warm_until, settled_mib, count = time.monotonic() + SECONDS / 4, 0.0, 0
    while time.monotonic() < deadline:
        data = edge(random)
        count += 1
        try:
            linger_s = random.choice((0.0, LINGER_S))
            said = exchange(server, pieces(random, data), linger_s=linger_s)
            assert b"500" not in _STATUS.findall(said), said[:500]
            if count % CHECK_EVERY == 0:
                check_health(server)
        except (AssertionError, OSError) as error:
            kept = tmp_path / "input"
            kept.write_bytes(data)
            pytest.fail(f"{error!r} after input {count}, kept in {kept}; again: {AGAIN}")
        if not settled_mib and time.monotonic() > warm_until:
            settled_mib = resident_mib(server)
    check_health(server)
    grown = resident_mib(server)
    with capsys.disabled():
        print(
            f"\n{edge.__name__}: seed {SEED}, {count} inputs, resident {settled_mib:.0f} MiB "
            f"after the first quarter, {grown:.0f} MiB at the end"
        )
    assert grown - settled_mib < MAX_GROWTH_MIB, f"again: {AGAIN}"
    assert "Traceback" not in server.stderr, f"{server.stderr[-3000:]}\nagain: {AGAIN}"
    assert " ERROR " not in server.stderr, server.stderr[-3000:]


def exchange(server: ServerProcess, parts: list[bytes], *, linger_s: float) -> bytes:
    """Send all of it, end our side, at once or after a while, and hear the answer to its end."""
    said = b""
    with socket.create_connection((server.host, server.port), timeout=PATIENCE_S) as peer:
        try:
            for part in parts:
                peer.sendall(part)
            while linger_s and select([peer], [], [], linger_s)[0]:
                data = peer.recv(1 << 16)
                if not data:
                    return said
                said += data
            peer.shutdown(socket.SHUT_WR)
            while data := peer.recv(1 << 16):
                said += data
        except OSError as error:
            # The server may cut off what it does not want to hear, but never leave us waiting.
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
    return said


def check_health(server: ServerProcess) -> None:
    assert server.is_running
    begun = time.monotonic()
    httpx.get(f"{server.url}/v0/ready", timeout=PATIENCE_S).raise_for_status()
    assert time.monotonic() - begun < PATIENCE_S / 3


def resident_mib(server: ServerProcess) -> float:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not say how large the server is")

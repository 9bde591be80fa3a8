"""A real server in a process of its own, and what it costs.

Keys, a cold tier and checkpoints are on, as every other part that has no switch. The access log,
which is off unless asked for, is on only where a row says so.
CPU time is what the kernel charged the process, user and system together, with all its threads:
of all figures it is the one that other programs on the machine move least.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

KEY = "bench-key"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
START_S = 60.0
PATIENCE_S = 900.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ServingChild:
    """A process that serves HTTP on a local port."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        self.address = address

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def cpu_s(self) -> float:
        """Seconds of CPU time so far, user and system, all threads."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class BenchServer(ServingChild):
    """A server with its data in a scratch directory."""

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request; anything but success ends the benchmark."""
        sent = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        with closing(connect(self.address)) as connection:
            text = exchange(connection, method, path, sent, accept="application/json")
        found: dict[str, Any] = json.loads(text)
        return found

    def send(self, method: str, path: str, body: bytes | None, **headers: str) -> int:
        """One request as it is; its status, whatever that is."""
        with closing(connect(self.address)) as connection:
            connection.request(method, path, body, {**HEADERS, **headers})
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def create(self, topic: str, **config: object) -> None:
        self.call("PUT", f"/v0/topics/{topic}", config)

    def fill(self, topic: str, data: object, records: int, *, batch: int = 1000) -> None:
        """Append so many records, all alike."""
        for start in range(0, records, batch):
            some = [{"data": data}] * min(batch, records - start)
            self.call("POST", f"/v0/topics/{topic}?return_seqs=false", {"records": some})


def connect(address: str) -> http.client.HTTPConnection:
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    **headers: str,
) -> bytes:
    """One request that has to succeed; the body of its answer."""
    connection.request(method, path, body, {**HEADERS, **headers})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path} was answered with {text.decode()}")
    return text


@contextmanager
def served(directory: Path, **settings: str) -> Iterator[BenchServer]:
    """A server, ready; ended and waited for afterwards. What an earlier one left is there again."""
    port_file = directory / "port"
    port_file.unlink(missing_ok=True)
    (directory / "cold").mkdir(exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
    env: Mapping[str, str] = {
        **inherited,
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(directory / "data"),
        "TOPICS_COLD_DIR": str(directory / "cold"),
        "TOPICS_API_KEYS": KEY,
        **settings,
    }
    command = [sys.executable, "-m", "topics.cli", "serve", "--log-level", "error"]
    with child(command, port_file, env=env) as started:
        server = BenchServer(started.process, started.address)
        _wait_ready(server)
        yield server


def empty(directory: Path, kind: str, *arguments: object) -> AbstractContextManager[ServingChild]:
    """A server of `server_empty`."""
    port_file = directory / "port"
    command = [sys.executable, "-m", "topics.bench.server_empty", kind, str(port_file)]
    return child([*command, *map(str, arguments)], port_file)


@contextmanager
def child(
    command: list[str], port_file: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[ServingChild]:
    """Run a program that writes its address to `port_file`; ended and waited for afterwards."""
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} did not start")
            time.sleep(0.01)
        yield ServingChild(process, port_file.read_text().strip())
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def program(module: str, *arguments: object) -> Iterator[Callable[[], Any]]:
    """Run one of our own load programs. A call tells it to go on; what it then found comes back.

    Such a program says `ready` when it is connected, begins when told (`in_a_program`), prints what
    it found, and keeps its connections until the block ends, so that their end is not counted.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        told, said = process.stdin, process.stdout
        assert told is not None
        assert said is not None
        if said.readline() != b"ready\n":
            raise RuntimeError(f"{module} did not get its connections")

        def go_on() -> Any:  # noqa: ANN401 - what the program prints
            told.write(b"\n")
            told.flush()
            found = json.loads(said.readline() or b"null")
            if found is None:
                raise RuntimeError(f"{module} failed")
            return found

        yield go_on


def driven(server: ServingChild, module: str, *arguments: object) -> tuple[dict[str, Any], float]:
    """What a load program found, and the CPU the server spent meanwhile."""
    with program(module, server.address, *arguments) as go_on:
        before = server.cpu_s()
        found = go_on()
        return found, server.cpu_s() - before


def _wait_ready(server: BenchServer) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            server.call("GET", "/v0/ready")
        except RuntimeError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError("the server did not become ready")

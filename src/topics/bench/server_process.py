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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEY = "bench-key"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
START_S = 60.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Child:
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


class Served(Child):
    """A server with its data in a scratch directory."""

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request; anything but success ends the benchmark."""
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            sent = None if body is None else json.dumps(body, separators=(",", ":"))
            connection.request(method, path, sent, {**HEADERS, "accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path} was answered with {text.decode()}")
            found: dict[str, Any] = json.loads(text)
            return found
        finally:
            connection.close()

    def create(self, topic: str, **config: object) -> None:
        self.call("PUT", f"/v0/topics/{topic}", config)

    def fill(self, topic: str, data: object, records: int, *, batch: int = 1000) -> None:
        """Append so many records, all alike."""
        for start in range(0, records, batch):
            some = [{"data": data}] * min(batch, records - start)
            self.call("POST", f"/v0/topics/{topic}?return_seqs=false", {"records": some})


@contextmanager
def served(directory: Path, **settings: str) -> Iterator[Served]:
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
    with child(command, port_file, env=env) as (process, address):
        server = Served(process, address)
        _wait_ready(server)
        yield server


@contextmanager
def child(
    command: list[str], port_file: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a program that writes its address to `port_file`; ended and waited for afterwards."""
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} did not start")
            time.sleep(0.01)
        yield process, port_file.read_text().strip()
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def driven(server: Child, module: str, *arguments: object) -> tuple[dict[str, Any], float]:
    """Run one of our own load programs; what it found, and the CPU the server spent meanwhile.

    Such a program says `ready` when it is connected, begins when told, prints what it found, and
    keeps its connections until told again, so that their end is not counted.
    """
    command = [sys.executable, "-m", module, server.address, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{module} did not get its connections")
        before = server.cpu_s()
        process.stdin.write(b"\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline() or b"null")
        spent = server.cpu_s() - before
        process.stdin.write(b"\n")
    if found is None:
        raise RuntimeError(f"{module} failed")
    return found, spent


def _wait_ready(server: Served) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            server.call("GET", "/v0/ready")
        except RuntimeError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError("the server did not become ready")

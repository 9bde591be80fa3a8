"""A server to compare with: where its program is, how it is started and what it speaks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from topics.bench.compare.dialect import Asked, Dialect
from topics.bench.server_process import START_S, ServingChild


class Peer(ABC):
    """One kind of server."""

    name: str
    dialect: type[Dialect]

    @abstractmethod
    def missing(self) -> str | None:
        """What to install before this peer can take part; None if it can."""

    @abstractmethod
    def sync_settings(self, *, synced: bool) -> str:
        """When an acknowledged write is on the disk."""

    @abstractmethod
    def serving(self, directory: Path, *, synced: bool) -> AbstractContextManager[ServingChild]:
        """The server with its data in the directory, which may hold an earlier run's data."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def listening(
    command: Sequence[str | Path], port: int, directory: Path, *, user: str | None = None
) -> Iterator[ServingChild]:
    """Run a server until the block ends; its output goes to `output.log` in the directory."""
    with (directory / "output.log").open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=user,
            start_new_session=True,
        )
    try:
        _wait_for(process, port, directory)
        yield ServingChild(process, f"127.0.0.1:{port}")
    finally:
        end(process)


def ask(address: str, dialect: Dialect, exchange: Asked) -> None:
    """One exchange on a connection of its own; raises `OSError` or `RuntimeError` if it fails."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=START_S) as connection:
        for said in (*dialect.greeting(), exchange):
            connection.sendall(said.sent)
            _await_answers(connection, dialect, said)


def _await_answers(connection: socket.socket, dialect: Dialect, exchange: Asked) -> None:
    data, at, answers = b"", 0, 0
    while answers < exchange.answers:
        end_at = dialect.end_of_answer(data, at)
        if not end_at:
            more = connection.recv(1 << 20)
            if not more:
                raise ConnectionResetError("the server closed the connection")
            data += more
            continue
        answer, at = data[at:end_at], end_at
        if dialect.aside(answer) is None:
            dialect.check(answer)
            answers = exchange.answers if dialect.is_last(answer) else answers + 1


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group: the data is thrown away, and some peers take long to stop."""
    with suppress(ProcessLookupError):  # our own server has no group of its own
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    said = (directory / "output.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} did not start:\n{said}")

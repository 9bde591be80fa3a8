"""What the tests of the client share: doors by shell, a writer, a proxy that can go dead."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from tests.blackbox.client_doors import AsyncDoor
from tests.blackbox.conftest import child_environment

import topics
from topics.testing import LiveServer

T = TypeVar("T")
Door = Any
"""A log by whichever shell; their types differ."""
Shell = Literal["sync", "async"]
Kind = tuple[Shell, Literal["sse", "ws"]]
SHELLS: Sequence[Shell] = ("sync", "async")
KINDS: Sequence[Kind] = (("sync", "sse"), ("async", "sse"), ("sync", "ws"), ("async", "ws"))
BOTH = pytest.mark.parametrize("shell", SHELLS)
EVERY = pytest.mark.parametrize(("shell", "transport"), KINDS)
KEY = "right"
PATIENCE_S = 90.0


@contextlib.contextmanager
def live_server(root: Path, env: dict[str, str]) -> Iterator[LiveServer]:
    """A server whose process shares the compiled package with those of the other tests."""
    server = LiveServer(root, {"TOPICS_WAL_SHARDS": "1", "TOPICS_API_KEYS": KEY, **env})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", child_environment()["PYTHONPYCACHEPREFIX"])
        try:
            yield server.start()
        finally:
            server.end()


@contextlib.contextmanager
def doors() -> Iterator[Callable[..., Door]]:
    """`make(shell, url, **settings)`: clients that are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(shell: Shell, url: str, **settings: object) -> Door:
            kind: Any = AsyncDoor if shell == "async" else topics.open
            # A server that is stopped for a while must not look as if it were gone.
            log: Door = kind(url, **({"token": KEY, "heartbeat": 30.0} | settings))
            return stack.enter_context(log)

        yield make


def all_at_once(acts: Sequence[Callable[[], T]]) -> list[T]:
    """What each returns, run side by side; the first error of any is raised."""
    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(act) for act in acts]
        return [future.result(PATIENCE_S) for future in futures]


class Writer:
    """Appends numbers one by one, through whatever happens to the server."""

    def __init__(self, url: str, topic: str) -> None:
        self._log = topics.open(url, token=KEY, retries=100)
        self._topic = topic
        self._over = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.is_set():
            self._log.append(self._topic, {"data": self.written})
            self.written += 1
            self._over.wait(0.005)

    def stop(self) -> int:
        """How many were appended."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._log.close()
        return self.written


class Proxy:
    """Forwards bytes between clients and a server, until its connections go dead.

    A dead connection carries nothing more and is never closed: what a cable does that was cut.
    """

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.swallows_replies = threading.Event()
        """While it is set, requests go through and what the server answers does not."""
        self._alive = threading.Event()
        self._alive.set()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def cut(self) -> None:
        """Every connection made so far is dead; those to come live."""
        self._alive.clear()
        self._alive = threading.Event()
        self._alive.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()  # nobody is there just now
                continue
            self.connections += 1
            self._sockets.append(server)
            self._start(self._pump, client, server, self._alive, threading.Event())
            self._start(self._pump, server, client, self._alive, self.swallows_replies)

    def _pump(
        self,
        source: socket.socket,
        dest: socket.socket,
        alive: threading.Event,
        swallows: threading.Event,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if alive.is_set() and not swallows.is_set():
                    dest.sendall(data)
        if alive.is_set():
            with contextlib.suppress(OSError):
                dest.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for sock in self._sockets:
            sock.close()

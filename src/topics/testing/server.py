"""A real server in a process of its own, for tests of programs that use one."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog
    from topics.client.sync import RemoteLog

PATIENCE_S = 60.0
_POLL_S = 0.01
_PORT_TRIES = 3
_PORTS = range(15_000, 32_000)
"""Below the ports that the system gives to connections: a restart could not bind such a port."""
_chance = random.SystemRandom()  # test runs that share a seed must not share a port


def _free_port() -> int:
    while True:
        port = _chance.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class LiveServer:
    """`topics serve` on a directory of its own, on a free port that it keeps when restarted.

    Settings are environment variables (`TOPICS_WAL_SHARDS="1"`); those of the caller's own
    environment do not reach it.
    """

    def __init__(self, root: Path, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.data_dir = root / "data"
        self.env = dict(env or {})
        self._port_file = root / "port"
        self._said = root / "server.log"
        self._address = ""
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens; the same after a restart."""
        return f"http://{self._address}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def said(self) -> str:
        """Everything it printed."""
        return self._said.read_text(errors="replace")

    def open(self, **settings: Any) -> RemoteLog:  # noqa: ANN401 - see topics.open
        """A client of it; close it yourself."""
        from topics.client.opening import open_remote  # noqa: PLC0415 - nothing at pytest's start

        return open_remote(self.url, settings)

    def open_async(self, **settings: Any) -> AsyncRemoteLog:  # noqa: ANN401 - see topics.aio.open
        """An asyncio client of it; close it yourself."""
        from topics.client.opening import open_remote_async  # noqa: PLC0415 - as above

        return open_remote_async(self.url, settings)

    def start(self) -> LiveServer:
        """Start it and wait until it serves requests."""
        tries = 1 if self._port else _PORT_TRIES
        while True:
            self._port = self._port or _free_port()
            self.launch()
            try:
                self.wait_ready()
                return self
            except RuntimeError:
                self.end()
                tries -= 1
                if not tries:
                    raise
                self._port = 0  # another process may have taken it

    def launch(self) -> None:
        """Start it without waiting for anything."""
        assert not self.is_running, "it runs already"
        self._port_file.unlink(missing_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
        settings = {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": str(self._port),
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            **self.env,
        }
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli", "serve"],
                env=inherited | settings,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.root,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            if not self.is_running:
                raise RuntimeError(f"the server ended:\n{self.said}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server is not ready yet:\n{self.said}")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        from topics.client.sync_http import Http  # noqa: PLC0415 - as above
        from topics.errors import TopicsError, Unauthorized  # noqa: PLC0415 - as above

        if not self._port_file.exists():
            return False
        self._address = self._port_file.read_text().strip()
        try:
            with Http(self.url, retries=0, timeout=5.0) as http:
                http.request("GET", "/v0/ready")
        except Unauthorized:
            return True  # it asks for a key even here, and asks only when it is up
        except TopicsError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        assert self._process is not None, "start it first"
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """End it gracefully; returns its exit code."""
        assert self._process is not None, "start it first"
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def restart(self) -> LiveServer:
        """Serve again, on the same directory and port; what still runs is killed first."""
        self.end()
        return self.start()

    def end(self) -> None:
        """Leave no process behind, whatever state it is in."""
        if self.is_running:
            self.kill()

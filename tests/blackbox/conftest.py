"""A real server process for black-box tests.

    def test_something(server): httpx.get(server.url + "/v0/health")
    def test_settings(server_factory): server_factory(env={"TOPICS_WAL_SHARDS": "2"})
    def test_no_start(shared_server): ...    # one for the whole file; use topics of your own

`server_factory` starts any number of servers, each in its own directory unless told otherwise, and
ends them all after the test. Nothing of the caller's environment that begins with TOPICS_ gets in.
"""

from __future__ import annotations

import itertools
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.blackbox.api_client import Api

PATIENCE_S = 90.0
"""What has to happen happens in less, also on a machine that is busy with other things."""
_POLL_S = 0.01
_numbers = itertools.count(1)
_COMPILED = Path(tempfile.gettempdir()) / f"topics-compiled-{os.getuid()}"


def child_environment() -> dict[str, str]:
    """What a child process inherits: nothing of ours that begins with TOPICS_."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
    # Compiling the package takes longer than starting it: the processes of a run share that.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    inherited["PYTHONPYCACHEPREFIX"] = str(_COMPILED)
    return inherited


class ServerProcess:
    """One `topics serve` on its directory; it can be started again after it ended."""

    def __init__(self, root: Path, env: Mapping[str, str], flags: Sequence[str]) -> None:
        self.root = root
        self.data_dir = root / "data"
        self.env = dict(env)
        self.flags = list(flags)
        self.address = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._port_file = root / "port"
        self._stderr = root / "stderr"

    # Starting

    def launch(self) -> None:
        """Start the process without waiting for anything."""
        assert self.process is None or self.process.poll() is not None, "it still runs"
        self._port_file.unlink(missing_ok=True)
        settings = {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            **self.env,
        }
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli", "serve", *self.flags],
                env=child_environment() | settings,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd=self.root,
            )

    def start(self) -> ServerProcess:
        """Start the process and wait until it serves requests."""
        self.launch()
        self.wait_bound()
        self.wait_ready()
        return self

    def wait_bound(self) -> str:
        """Wait for the port file; returns the address in it."""
        wait_until(self._port_file.exists, self)
        self.address = self._port_file.read_text().strip()
        return self.address

    def wait_ready(self) -> None:
        wait_until(lambda: self._status("/v0/ready") == 200, self)

    # Talking

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        scheme = "https" if "TOPICS_TLS_CERT" in self.env else "http"
        return f"{scheme}://{self.address}"

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def stderr(self) -> str:
        """Everything it ever printed, over all its starts."""
        return self._stderr.read_text()

    def _status(self, path: str) -> int | None:
        """The status a GET gets; None while nobody answers."""
        context = ssl._create_unverified_context() if self.url.startswith("https") else None
        first_key = self.env.get("TOPICS_API_KEYS", "").partition(",")[0].partition(":")[0]
        asked = urllib.request.Request(self.url + path)
        asked.add_header("authorization", f"Bearer {first_key}")
        try:
            with urllib.request.urlopen(asked, timeout=5, context=context) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return None

    # Ending

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; returns the exit code, negative for a signal."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """End it gracefully; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self.signal(signal.SIGKILL)
        self.wait()

    def restart(self) -> ServerProcess:
        """Serve again from the same directory; what still runs is killed first."""
        if self.is_running:
            self.kill()
        return self.start()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self.is_running:
            self.kill()


def wait_until(happened: Callable[[], bool], server: ServerProcess) -> None:
    """Wait for something that a running server brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if not server.is_running:
            raise AssertionError(f"the server ended with {server.wait()}:\n{server.stderr}")
        if time.monotonic() > deadline:
            raise AssertionError(f"the server is not there yet:\n{server.stderr}")
        time.sleep(_POLL_S)


ServerFactory = Callable[..., ServerProcess]
Connect = Callable[..., Api]


@pytest.fixture
def server_factory(tmp_path: Path) -> Iterator[ServerFactory]:
    """`server_factory(env={...}, flags=[...], start=True, data_dir=None)`."""
    started: list[ServerProcess] = []

    def make(
        env: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        *,
        start: bool = True,
        data_dir: Path | None = None,
    ) -> ServerProcess:
        root = tmp_path / f"server-{len(started)}"
        root.mkdir()
        server = ServerProcess(root, env or {}, flags)
        if data_dir is not None:
            server.data_dir = data_dir
        started.append(server)
        return server.start() if start else server

    yield make
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def shared_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """One server for all tests of a file; never stop or restart it.

    It has the default settings and those of the file's `SERVER_ENV`, if there is one.
    """
    env = getattr(request.module, "SERVER_ENV", {})
    server = ServerProcess(tmp_path_factory.mktemp("shared"), env, ()).start()
    yield server
    server.end()


@pytest.fixture
def server(server_factory: ServerFactory) -> ServerProcess:
    """A server with the default settings, ready."""
    return server_factory()


# Clients of the shared server


@pytest.fixture(scope="module", params=["HTTP/1.1", "HTTP/2"])
def api(request: pytest.FixtureRequest, shared_server: ServerProcess) -> Iterator[Api]:
    """A client of the shared server; the test runs once in each version of HTTP."""
    client = Api(shared_server, version=request.param)
    yield client
    client.close()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(server, version="HTTP/2", key="secret")`: further clients, closed after the test."""
    clients: list[Api] = []

    def make(server: ServerProcess, **options: str) -> Api:
        clients.append(Api(server, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def topic() -> str:
    """The name of a topic that nobody else uses."""
    return f"t{next(_numbers)}"

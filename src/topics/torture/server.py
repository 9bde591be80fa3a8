"""One server under torture: started by the nursery, killed by us, started again."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from topics.torture.calls import Gone

PATIENCE_S = 60.0
"""How long anything may take on a busy machine."""
_POLL_S = 0.003


class Stuck(Exception):
    """The server did not do what it must do, in all the time it had."""


class Nursery:
    """The process that makes servers. Use it in a `with` block: nothing outlives that."""

    def __init__(self, env: Mapping[str, str]) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
        # A library that starts threads of its own would make forking unsafe.
        calm = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "topics.torture.nursery"],
            env={**inherited, **calm, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for this process: the nursery reports the end of servers, so it must go on.
            start_new_session=True,
        )
        self._pids: queue.Queue[int] = queue.Queue()
        self._codes: dict[int, int] = {}
        self._ended = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "code" in said:
                with self._ended:
                    self._codes[said["pid"]] = said["code"]
                    self._ended.notify_all()
            else:
                with self._ended:
                    self._codes.pop(said["pid"], None)  # numbers of dead processes come again
                self._pids.put(said["pid"])

    def start(self, env: Mapping[str, str], words: Path) -> int:
        """A new server; returns its pid."""
        order = json.dumps({"env": dict(env), "words": str(words)})
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()
        return self._pids.get(timeout=PATIENCE_S)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a server, negative for a signal; None while it runs."""
        return self._codes.get(pid)

    def wait(self, pid: int, seconds: float = PATIENCE_S) -> int | None:
        """Wait for the end of a server; returns what `code_of` then says."""
        with self._ended:
            self._ended.wait_for(lambda: pid in self._codes, seconds)
        return self.code_of(pid)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class TorturedServer:
    """A server on one directory, over all its deaths."""

    def __init__(self, nursery: Nursery, root: Path) -> None:
        self.root = root
        self.data_dir = root / "data"
        self.cold_dir = root / "cold"
        self.pid = 0
        self._nursery = nursery
        self._port_file = root / "port"
        self._words = root / "words"

    def launch(self, *, shards: int, crash_at: str | None = None) -> None:
        """Start without waiting; with `crash_at` it kills itself at that crash point."""
        assert not self.is_running
        self._port_file.unlink(missing_ok=True)
        env = {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            "TOPICS_COLD_DIR": str(self.cold_dir),
            "TOPICS_WAL_SHARDS": str(shards),
            "TOPICS_SEGMENT_MAX_EVENTS": "10",
            "TOPICS_HOT_RETAIN_SEGMENTS": "1",
        }
        if crash_at is not None:
            env |= {"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": crash_at}
        self.pid = self._nursery.start(env, self._words)

    def address(self) -> tuple[str, int]:
        """Where it listens; `Gone` if it ends before it does."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._port_file.exists():
            self._check_alive(deadline)
            time.sleep(_POLL_S)
        host, _, port = self._port_file.read_text().strip().rpartition(":")
        return host, int(port)

    def wait_ready(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it takes requests; `Gone` if it ends before it does."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_ready():
            self._check_alive(deadline)
            time.sleep(_POLL_S)

    def _check_alive(self, deadline: float) -> None:
        if not self.is_running:
            raise Gone(f"it ended with {self._nursery.code_of(self.pid)}")
        if time.monotonic() > deadline:
            raise Stuck(f"the server is not there after {PATIENCE_S:.0f} s\n{self.words}")

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and self._nursery.code_of(self.pid) is None

    @property
    def words(self) -> str:
        """The end of what it printed."""
        return self._words.read_text(errors="replace")[-4000:] if self._words.exists() else ""

    def kill(self) -> bool:
        """SIGKILL: nothing is flushed, nothing is said. False if the process was gone already."""
        if not self.is_running:
            return False
        self._signal(signal.SIGKILL)
        self.wait()
        return True

    def terminate(self) -> None:
        """Ask it to stop."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            # It may be faster than we are.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float = PATIENCE_S) -> int | None:
        """Wait for its end; returns the exit code, None if it still runs."""
        return self._nursery.wait(self.pid, seconds)

"""Drivers of Spark in processes of their own: started, watched, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.spark.conftest import CONF
from tests.spark.processes import descendants, is_running
from tests.spark.proxy import Held, Request

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600.0
_POLL_S = 0.05


class Driver:
    """One run of `copying_driver`. Files of all its runs are in `work`."""

    def __init__(self, work: Path, **run: Any) -> None:  # noqa: ANN401 - checked by the driver
        self.work = work
        self._words = work / "driver-output"
        (work / "jvm").unlink(missing_ok=True)
        settings = {
            "master": "local[2,3]",
            "conf": CONF | {"spark.local.dir": str(work / "local")},
            "code": "",
            **run,
        }
        with self._words.open("ab") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.copying_driver", json.dumps(settings)],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # its end tells the driver that the test is gone
                stdout=words,
                stderr=words,
                start_new_session=True,
            )

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something that a running driver brings about."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            ended = self.process.poll()
            assert ended is None, f"the driver ended with {ended} before {what}:\n{self.words}"
            assert time.monotonic() < deadline, f"no {what} yet:\n{self.words}"
            time.sleep(_POLL_S)

    def wait_for_held(self, held: Held, count: int = 1) -> list[Request]:
        """Wait until so many of its requests are held."""
        self.wait_until(lambda: len(held.requests) >= count, f"{count} held requests")
        return list(held.requests)

    def wait_for_batch(self, number: int, *queries: str) -> None:
        """Wait until Spark itself counts a batch of these queries as done."""
        done = [self.work / f"checkpoint-{query}" / "commits" / str(number) for query in queries]
        self.wait_until(lambda: all(path.exists() for path in done), f"end of batch {number}")

    def has_batch(self, number: int, query: str) -> bool:
        return (self.work / f"checkpoint-{query}" / "commits" / str(number)).exists()

    @property
    def jvm(self) -> int:
        self.wait_until((self.work / "jvm").exists, "JVM")
        return int(self.told("jvm"))

    def told(self, what: str) -> Any:  # noqa: ANN401 - JSON
        """A fact that the driver has put down."""
        return json.loads((self.work / what).read_text())

    def kill_jvm(self) -> None:
        """SIGKILL the JVM and what works for it; its Python half cannot go on without it.

        Its workers would end by themselves, but some time later: one that waits for an answer
        could still try again, beside the next driver.
        """
        jvm = self.jvm
        os.kill(jvm, signal.SIGSTOP)  # so that it starts nobody else
        doomed = [jvm, *descendants(jvm)]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process.wait(PATIENCE_S) != 0
        deadline = time.monotonic() + PATIENCE_S
        while any(map(is_running, doomed)):
            assert time.monotonic() < deadline, "killed, and still there"
            time.sleep(_POLL_S)

    def finish(self) -> None:
        """Wait for its own, good end."""
        code = self.process.wait(PATIENCE_S)
        assert code == 0, f"the driver ended with {code}:\n{self.words}"

    @property
    def words(self) -> str:
        """The end of all that drivers said here."""
        return self._words.read_text(errors="replace")[-6000:]

    def end(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextlib.contextmanager
def running(work: Path, **run: Any) -> Iterator[Driver]:  # noqa: ANN401
    """A driver that is gone at the end, whatever happened."""
    driver = Driver(work, **run)
    try:
        yield driver
    finally:
        driver.end()

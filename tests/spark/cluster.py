"""A Spark standalone cluster on this machine: a master and two workers, from the pip package.

    with Cluster(tmp_path) as cluster:
        session(cluster.master, ...)

Ports are free ones; Java is the one a session would use, with or without one on this machine. Each
worker has one core, so that a job of two tasks has an executor in each.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from topics.spark import java
from topics.spark.starting import spark_home

WORKERS = 2
PATIENCE_S = 180.0
_POLL_S = 0.05
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class Cluster:
    """Runs as long as the `with` block."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            self._start("master.Master")
            self.master = self._wait_for(0, _MASTER)
            for number in range(1, WORKERS + 1):
                self._start(
                    "worker.Worker",
                    *("--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(self._work / f"executors-{number}"), self.master),
                )
            for number in range(1, WORKERS + 1):
                self._wait_for(number, re.compile(_REGISTERED))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def workers(self) -> list[int]:
        """The processes of the workers."""
        return [daemon.pid for daemon in self._daemons[1:]]

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        return [pid for pid in _children(self.workers) if b"CoarseGrainedExecutor" in _command(pid)]

    def kill_executor(self) -> None:
        """SIGKILL one of the executors, in the middle of whatever it does."""
        os.kill(self.executors()[0], signal.SIGKILL)

    # Inside

    def _start(self, daemon: str, *arguments: str) -> None:
        home = spark_home()
        settings = {
            "JAVA_HOME": str(java.home_for_spark(java.search().require())),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        with self._words(len(self._daemons)).open("wb") as words:
            process = subprocess.Popen(
                command,
                env=os.environ | settings,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        self._daemons.append(process)

    def _words(self, number: int) -> Path:
        return self._work / f"daemon-{number}"

    def _wait_for(self, number: int, sign: re.Pattern[str]) -> str:
        """Wait until a daemon has said it; returns the group of it, or all."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self._words(number).read_text(errors="replace")
            found = sign.search(said)
            if found:
                return found[sign.groups]
            ended = self._daemons[number].poll()
            assert ended is None, f"the daemon ended with {ended}:\n{said}"
            assert time.monotonic() < deadline, f"no {sign.pattern!r} yet:\n{said}"
            time.sleep(_POLL_S)

    def _end(self) -> None:
        for daemon in reversed(self._daemons):
            # Executors are in the group of their worker.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait(PATIENCE_S)


def _children(parents: list[int]) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            if entry.isdecimal():
                # The name, in brackets, may hold anything; the parent is the second field after it.
                parent = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1]
                if int(parent) in parents:
                    found.append(int(entry))
    return found


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""

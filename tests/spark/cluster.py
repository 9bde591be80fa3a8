"""A Spark standalone cluster on this machine: the one of the page about clusters, as it is there.

    with Cluster(tmp_path, url=server.url) as cluster:
        session(cluster.master, ...)

Its workers are not waited for: whoever asks the master for executors gets them when they are there.
Each of the two has one core, so that a job of two tasks has an executor in each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.conftest import QUICK_JVM
from tests.spark.pages import CLUSTER_PAGE, blocks_of
from tests.spark.processes import children, command_of
from tests.spark.servers import lasting_port

from topics.spark.setup.session import spark_home

WORKERS = 2
PAGE_PORT = "7077"
PATIENCE_S = 180.0
_POLL_S = 0.05


class Cluster:
    """Runs as long as the `with` block."""

    def __init__(self, work: Path, *, url: str) -> None:
        self._work = work
        self._port = lasting_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self.blocks = [
            block._replace(code=block.code.replace(PAGE_PORT, str(self._port)))
            for block in blocks_of(CLUSTER_PAGE, url=url)
        ]
        """The page, with the port of this cluster and the address of the server."""

    def __enter__(self) -> Self:
        (program,) = [block for block in self.blocks if block.title == "cluster.py"]
        file = self._work / "cluster.py"
        file.write_text(program.code)
        quick = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_WORKER_DIR": str(self._work / "executors"),
        }
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, str(file)],
                env=os.environ | quick,
                cwd=self._work,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # daemons and executors are in its group
        self._process.wait(PATIENCE_S)

    def wait_for_master(self) -> None:
        """A driver does not wait for it very long."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as door:
                if door.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            ended = self._process.poll()
            assert ended is None, f"the cluster ended with {ended}:\n{self.words}"
            assert time.monotonic() < deadline, f"the master does not listen yet:\n{self.words}"
            time.sleep(_POLL_S)

    @property
    def _words(self) -> Path:
        return self._work / "cluster-output"

    @property
    def words(self) -> str:
        """The end of all that its daemons said."""
        return self._words.read_text(errors="replace")[-6000:]

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        daemons = children([self._process.pid])
        return [pid for pid in children(daemons) if b"CoarseGrainedExecutor" in command_of(pid)]

    def kill_executor(self) -> None:
        """SIGKILL one of the executors, in the middle of whatever it does."""
        os.kill(self.executors()[0], signal.SIGKILL)

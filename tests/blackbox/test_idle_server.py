"""A server that has nothing to do does nothing."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.blackbox.conftest import ServerProcess
from tests.blackbox.event_client import EventStream, watch, write

WATCHERS = 20
IDLE_S = 4.0
TRIES = 8
"""What the writes left to do, such as their sync, takes its time on a busy machine."""
MAX_SHARE = 0.02
"""Of one core. The kernel counts in ticks of 10 ms, so a single one is already 0.25 %."""


def cpu_s(server: ServerProcess) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_idle_server_with_open_streams_uses_no_measurable_cpu(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write(server, "t", 1)
    with ExitStack() as stack:
        for _ in range(WATCHERS):
            path = watch(server, "t")["stream_url"]
            stack.enter_context(EventStream(server, path)).until("caught-up")
        time.sleep(1.5)  # the work of the writes above, such as their sync, is not idleness
        for _ in range(TRIES):
            before = cpu_s(server)
            time.sleep(IDLE_S)  # this is the measurement: time in which nothing happens
            used = cpu_s(server) - before
            if used <= IDLE_S * MAX_SHARE:
                break
    with capsys.disabled():
        print(f"\nidle for {IDLE_S:.0f} s with {WATCHERS} open streams: {used * 1e3:.0f} ms of CPU")
    assert used <= IDLE_S * MAX_SHARE

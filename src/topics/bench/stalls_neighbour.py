"""A neighbour in a process of its own: how long a small request waits beside what others ask for.

    python -m topics.bench.stalls_neighbour ADDRESS PID

Writes one record every few milliseconds, each after the answer to the last, until it is told to
end. Prints JSON: the longest wait for an answer, the median wait, how many requests there were, and
the most CPU time that the server (PID) and the thread of its loop used during one wait. On a busy
machine the wait also holds the time in which the server was ready but had no core; CPU time does
not.
"""

from __future__ import annotations

import json
import select
import statistics
import sys
import time
from pathlib import Path

from topics.bench.bench import payload
from topics.bench.server_process import connect, exchange

PATH = "/v0/topics/neighbour?return_seqs=false"
EVERY_S = 0.003


def tick(address: str, pid: int) -> dict[str, float]:
    """Write until a line comes in."""
    cpu, loop = _cpu_clock(pid), Path(f"/proc/{pid}/task/{pid}/schedstat")
    connection = connect(address)
    body = json.dumps({"records": [{"data": payload()}]}).encode()
    waits_ms: list[float] = []
    worked_ms: list[float] = []
    looped_ms: list[float] = []
    exchange(connection, "POST", PATH, body)  # makes the topic
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        loop_began = _ran_ms(loop)
        began, cpu_began = time.perf_counter(), time.clock_gettime(cpu)
        exchange(connection, "POST", PATH, body)
        waits_ms.append((time.perf_counter() - began) * 1000)
        # All threads count, also two at once, so this can exceed the wait.
        worked_ms.append(min(waits_ms[-1], (time.clock_gettime(cpu) - cpu_began) * 1000))
        looped_ms.append(min(waits_ms[-1], _ran_ms(loop) - loop_began))
    sys.stdin.readline()
    connection.close()
    return {
        "longest_ms": max(waits_ms, default=0.0),
        "longest_work_ms": max(worked_ms, default=0.0),
        "longest_loop_ms": max(looped_ms, default=0.0),
        "median_ms": statistics.median(waits_ms) if waits_ms else 0.0,
        "requests": len(waits_ms),
    }


def _ran_ms(loop: Path) -> float:
    """The CPU time of one thread so far (`schedstat` of Linux)."""
    return int(loop.read_bytes().split()[0]) / 1e6


def _cpu_clock(pid: int) -> int:
    """The clock of the CPU time of another process (`clock_getcpuclockid` of Linux)."""
    return (~pid << 3) | 2


if __name__ == "__main__":
    print(json.dumps(tick(sys.argv[1], int(sys.argv[2]))), flush=True)

"""Tasks that need a process of their own: a fresh heap, or a violent end. Each prints JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import topics
from topics.bench.bench import payload, stored
from topics.embedded import Log

BATCH = 1000


def resident_bytes() -> int:
    """Memory of this process that is resident now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fill_and_die(directory: str, records: str, settings: str) -> dict[str, Any]:
    """Append, then end as a crash would."""
    _fill(directory, int(records), json.loads(settings), "")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fill(directory: str, records: str, distinct_tags: str) -> dict[str, Any]:
    """Append and close cleanly; every record has a tag unless there are none."""
    log = _fill(directory, int(records), {}, distinct_tags)
    log.close()
    return {}


def _fill(directory: str, records: int, settings: dict[str, Any], distinct_tags: str) -> Log:
    log = topics.open(directory, **settings)
    data = stored(payload())
    distinct = int(distinct_tags or 0)
    for start in range(0, records, BATCH):
        count = min(BATCH, records - start)
        if distinct:
            batch = [{"data": data, "tag": f"user-{(start + i) % distinct}"} for i in range(count)]
        else:
            batch = [{"data": data}] * count
        log.append("t", batch)
    return log


def reopen(directory: str) -> dict[str, Any]:
    """Open, read one page at the front and one at the head; times and memory."""
    with tempfile.TemporaryDirectory() as scratch, topics.open(scratch) as warm:
        warm.append("t", {"data": 1})  # imports are measured elsewhere
    began = time.perf_counter()
    log = topics.open(directory)
    opened = time.perf_counter()
    page = log.read("t", after=0, limit=100)
    first = time.perf_counter()
    head = page.head_seq
    log.read("t", after=head - 100, limit=100)
    found = {
        "open": opened - began,
        "first_read": first - opened,
        "head": head,
        "resident": resident_bytes(),
    }
    log.close()
    return found


def tail_memory(records: str) -> dict[str, Any]:
    """Memory that records cost while they are only in the log, the payload cache kept tiny."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        settings = {"cache_bytes": 1 << 16, "checkpoint_bytes": 1 << 40, "checkpoint_ms": 1 << 40}
        warm = _fill(directory, BATCH, settings, "")
        warm.close()
        before = resident_bytes()
        log = _fill(directory, int(records), settings, "")
        after = resident_bytes()
        log.close()
    return {"per_record": (after - before) / int(records)}


def tag_memory(directory: str) -> dict[str, Any]:
    """Memory that the tag index adds when it is first used."""
    with topics.open(directory) as log:
        log.read("t", limit=1)
        before = resident_bytes()
        log.delete("t", match="nobody")
        return {"added": resident_bytes() - before}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "fill_and_die": fill_and_die,
    "fill": fill,
    "reopen": reopen,
    "tail_memory": tail_memory,
    "tag_memory": tag_memory,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))

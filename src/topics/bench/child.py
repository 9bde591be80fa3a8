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
from topics.client.sync import RemoteLog
from topics.core.facts import Match
from topics.embedded import Log
from topics.engine.clock import SystemClock
from topics.engine.effects import run
from topics.engine.reads.reading import Query
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.storage.fs import RealFs

BATCH = 1000


def resident_bytes() -> int:
    """Memory of this process that is resident now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fill_and_die(directory: str, records: str, settings: str) -> dict[str, Any]:
    """Append, then end as a crash would."""
    _append(topics.open(directory, **json.loads(settings)), int(records))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fill(directory: str, records: str, distinct_tags: str) -> dict[str, Any]:
    """Append and close cleanly; every record has a tag unless there are none."""
    with topics.open(directory) as log:
        _append(log, int(records), int(distinct_tags))
    return {}


def _append(log: Log | RemoteLog, records: int, distinct_tags: int = 0) -> None:
    data = stored(payload())
    for start in range(0, records, BATCH):
        batch: list[dict[str, Any]] = [{"data": data}] * min(BATCH, records - start)
        if distinct_tags:
            batch = [
                {"data": data, "tag": f"user-{at % distinct_tags}"}
                for at in range(start, start + len(batch))
            ]
        log.append("t", batch)


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
    """Memory that records cost while they are only in the log, the payload cache kept tiny.

    The first tenth fills what does not grow with the number of records, so the rest counts.
    """
    settings: dict[str, Any] = {
        "cache_bytes": 1 << 16,
        "checkpoint_bytes": 1 << 40,
        "checkpoint_ms": 1 << 40,
    }
    first, rest = int(records) // 10, int(records) - int(records) // 10
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as directory:
        log = topics.open(directory, **settings)
        _append(log, first)
        before = resident_bytes()
        _append(log, rest)
        after = resident_bytes()
        log.close()
    return {"per_record": (after - before) / rest}


def tag_memory(directory: str) -> dict[str, Any]:
    """Memory that the tag index adds when it is first used, beyond the bounded caches."""
    engine = open_engine(RealFs(), directory, Opening(EngineSettings(), SystemClock()))
    store = engine.kernel.segments
    assert store is not None
    run(engine.read("t", Query(limit=1)))
    before = resident_bytes() - store.cached_bytes
    run(engine.delete("t", before=None, match=Match("nobody")))
    added = resident_bytes() - store.cached_bytes - before
    engine.close()
    return {"added": added}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "fill_and_die": fill_and_die,
    "fill": fill,
    "reopen": reopen,
    "tail_memory": tail_memory,
    "tag_memory": tag_memory,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))

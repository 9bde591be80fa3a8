"""Makes servers: a process that has imported everything and forks a server for every order.

`python -m topics.torture.nursery` reads orders from its input, one JSON object a line: the
environment of a server and where its words go. It answers with `{"pid": n}` at once and with
`{"pid": n, "code": c}` when that server has ended. Starting a server costs little this way, so that
a second is enough to start, load, kill and check one. When the input ends, so does everything.

The servers run the code of `topics serve`, with numbers that make much happen in little time: small
log files, and upkeep that looks for work many times a second.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from topics.cli.serve import arm_test_hooks, set_up_logging
from topics.server import serve
from topics.server.config import load
from topics.storage.wal.settings import WalSettings

LOG_FILE_BYTES = 96 << 10
CHECKPOINT_MS = 60
IMPATIENCE: Mapping[str, Mapping[str, object]] = {
    "topics.server.serve": {
        "UPKEEP_SECONDS": 0.02,
        "WalSettings": partial(WalSettings, file_bytes=LOG_FILE_BYTES, probe_ms=50),
    },
    "topics.engine.recovery.opening": {
        "WalSettings": partial(WalSettings, file_bytes=LOG_FILE_BYTES, probe_ms=50)
    },
    "topics.engine.upkeep.schedule": {"POLL_MS": 20, "BACKOFF_MAX_MS": 100},
}
"""What differs from a server in production: sizes and intervals, nothing else."""


def main() -> None:
    """Serve orders until the input ends."""
    for module, changes in IMPATIENCE.items():
        for name, value in changes.items():
            assert hasattr(import_module(module), name)
            setattr(import_module(module), name, value)
    # Imported when first used by a server; once here is cheaper than once in each.
    for module in ("uvloop", "topics.http.api.arrow", "topics.engine.reads.bulk", "numpy"):
        import_module(module)
    children: set[int] = set()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    orders = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(children)
        if 0 in ready:
            more = os.read(0, 1 << 16)
            if not more:
                break
            *lines, orders = (orders + more).split(b"\n")
            for line in lines:
                children.add(_fork(json.loads(line)))
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = 70
        try:
            code = _become_server(order)
        finally:
            sys.stderr.flush()
            os._exit(code)
    _say({"pid": pid})
    return pid


def _become_server(order: dict[str, Any]) -> int:
    words = os.open(order["words"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target in (1, 2):
        os.dup2(words, target)
    os.dup2(nothing, 0)
    os.environ.update(order["env"])
    set_up_logging("info")
    arm_test_hooks(os.environ)
    config = load(os.environ)
    engine = msgspec.structs.replace(config.engine, checkpoint_ms=CHECKPOINT_MS)
    return serve.serve(replace(config, engine=engine))


def _report_ended(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(line: dict[str, int]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main()

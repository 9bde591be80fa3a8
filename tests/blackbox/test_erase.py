"""Erasing over HTTP: progress, receipts, a kill in the middle, and no byte left under load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess, wait_until

import topics
from topics.errors import TopicsError
from topics.values import ErasureState

SECRET = "the-secret-of-user-seven"


def write(log: topics.RemoteLog | topics.Log, first: int, count: int) -> None:
    log.append(
        "t",
        [
            {
                "data": {"text": SECRET if n % 5 == 0 else f"what-another-said-{n}", "n": n},
                "tag": "user-7" if n % 5 == 0 else "user-8",
            }
            for n in range(first, first + count)
        ],
    )


@contextmanager
def load(server: ServerProcess) -> Iterator[list[int]]:
    """Others write meanwhile."""
    written: list[int] = []
    over = threading.Event()

    def run() -> None:
        with topics.open(server.url) as log:
            while not over.is_set():
                try:
                    written.append(log.append("t", {"data": {"n": -1}, "tag": "load"}).last_seq)
                except TopicsError:
                    return  # it was killed

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


def filled(server_factory: ServerFactory) -> ServerProcess:
    """A server that stopped: its records are in segments."""
    server = server_factory(env={"TOPICS_SEGMENT_MAX_EVENTS": "50"})
    with topics.open(server.url) as log:
        log.create("t", durability="fsync")
        for first in range(0, 300, 20):
            write(log, first, 20)
    assert server.stop() == 0
    return server


def files_with_secret(root: Path) -> list[Path]:
    files = (path for path in root.rglob("*") if path.is_file())
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def ended(log: topics.RemoteLog | topics.Log, server: ServerProcess) -> ErasureState:
    wait_until(lambda: log.erasures("t")[0].state == "done", server)
    return log.erasures("t")[0]


@pytest.mark.parametrize("point", ["erase.swapped", "erase.dropped"])
def test_a_server_killed_during_an_erasure_under_load_ends_it_after_the_restart(
    server_factory: ServerFactory, point: str
) -> None:
    hooks = {"TOPICS_TEST_HOOKS": "1", "TOPICS_CRASHPOINT": f"{point}:1"}
    server = filled(server_factory)
    server.env.update(hooks)
    server.start()
    with topics.open(server.url) as log, load(server) as written:
        begun = log.erase("t", match="user-7")
        assert (begun.deleted, begun.state) == (60, "running")
        assert server.wait() < 0
    for name in hooks:
        del server.env[name]
    server.start()
    with topics.open(server.url) as log, load(server):
        state = ended(log, server)
        assert state.receipt is not None
        assert state.receipt["scan"]["found"] == []
        assert files_with_secret(server.data_dir) == []
        assert log.audit("t").deleted == 60
        found = list(log.follow("t", wait=0.0, limit=1000))
        live = {record.seq for record in found if isinstance(record, topics.Record)}
        assert set(written) <= live
        assert len([seq for seq in live if seq <= 300]) == 240


def test_an_erasure_under_load_leaves_no_byte(server_factory: ServerFactory) -> None:
    server = filled(server_factory).start()
    with topics.open(server.url) as log:
        with load(server):
            log.erase("t", match="user-7")
            state = ended(log, server)
            assert files_with_secret(server.data_dir) == []
        assert state.receipt is not None
        assert state.receipt["scan"]["probes"] > 0
        assert SECRET not in str(state.receipt)
        assert log.erasures("absent") == []

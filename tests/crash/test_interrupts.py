"""Exceptions that a signal handler raises inside the calls of an embedded log, such as Ctrl-C.

`topics torture --interrupts` does the same at random for as long as one likes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from unittest import mock

import pytest

import topics
from topics.core.facts import Appended
from topics.core.topic import Topic
from topics.embedded import Log
from topics.embedded.calls import _CHANGING, Calls
from topics.engine.engine import Engine
from topics.errors import Closed, Interrupted, LogFailed
from topics.storage.wal.shard import Shard, ShardState
from topics.torture.interrupted import Damaged, World, adding, append
from topics.torture.interrupted_calls import CALLS
from topics.torture.interruptions import KINDS, Steps
from topics.torture.interrupts import interrupt

ROW = {"data": 1}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with topics.open(tmp_path / "log") as opened:
        assert isinstance(opened, Log)
        opened.create("t", durability="fsync")
        yield opened


def test_pr13_an_exception_at_any_place_of_any_call_leaves_a_log_that_is_whole(
    tmp_path: Path,
) -> None:
    done = interrupt(times=40, seed=13, directory=tmp_path, with_signals=False)
    assert done.damaged == [], f"seed {done.seed}"
    assert len(done.calls) > len(CALLS) // 3
    assert done.recovered_in_place > 0
    assert done.reopened > 0


def test_pr13_real_signals_leave_a_log_that_is_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "topics.cli", "torture", "--interrupts", "20"]
    done = subprocess.run(
        [*command, "--seed", "13", "--dir", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["interrupts"] >= 20
    assert figures["damaged_logs"] == 0
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_log_that_goes_on_with_what_an_interrupt_left_is_found_out(tmp_path: Path) -> None:
    def careless(calls: Calls) -> Engine:
        return calls._engine

    def left(topic: Topic, run: Appended) -> None:
        topic.head += 1
        raise KeyboardInterrupt

    world = World(tmp_path / "log", Random(13))
    with mock.patch.object(Calls, "_sound", careless):
        with pytest.raises(KeyboardInterrupt), mock.patch.object(Topic, "apply_appended", left):
            world.do(adding("disk", [1]), lambda: append(world, "disk", [1]))
        with pytest.raises(Damaged):
            world.judge()
    assert world.log is not None
    world.log._abandon()


@pytest.mark.parametrize("kind", KINDS)
def test_pr13_an_append_is_there_whole_or_not_wherever_it_is_left(
    log: Log, kind: type[BaseException]
) -> None:
    """Every place of it, one after the other, each time with two records and a key."""
    rows = [{"data": 1}, {"data": 2}]
    # A `TimeoutError` may be taken for the disk's.
    expected = (kind, LogFailed) if kind is TimeoutError else kind
    acked = place = 0
    while True:
        place += 7  # not a part of what a call has: other places each time
        steps = Steps(kind, place)
        try:
            with steps:
                log.append("t", rows, idempotency_key=str(place))
        except expected:
            assert steps.came
            log.append("t", rows, idempotency_key=str(place))
        acked += 1
        audit = log.audit("t")
        assert audit.adds_up
        assert audit.live == 2 * acked
        if not steps.came:
            return


def interrupted(log: Log) -> None:
    """Leave an append in the middle, after its write and before it is shown."""
    with (
        mock.patch.object(Shard, "sync", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.append("t", ROW)


def test_the_call_after_an_interrupted_one_recovers_in_place(log: Log, tmp_path: Path) -> None:
    before = log._engine
    interrupted(log)
    log.append("t", ROW)
    assert log._engine is not before
    assert [record.seq for record in log.read("t").records] == [1, 2]
    with pytest.raises(topics.errors.DirectoryLocked):
        topics.open(tmp_path / "log")


def test_an_interrupted_read_costs_no_recovery(log: Log) -> None:
    log.append("t", ROW)
    log.maintain()
    log.state("t")
    engine = log._engine
    with (
        mock.patch.object(engine, "read", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.read("t")
    assert len(log.read("t").records) == 1
    assert log._engine is engine


def test_an_interrupted_log_is_recovered_by_its_close(log: Log, tmp_path: Path) -> None:
    log.append("t", ROW)
    interrupted(log)
    log.close()
    with topics.open(tmp_path / "log", read_only=True) as view:
        assert len(view.read("t").records) == 2
    with pytest.raises(Closed):
        log.append("t", ROW)


def test_an_interrupted_close_lets_go_of_the_directory(log: Log, tmp_path: Path) -> None:
    log.append("t", ROW)
    with (
        mock.patch.object(Engine, "close", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.close()
    with pytest.raises(Closed):
        log.append("t", ROW)
    with topics.open(tmp_path / "log") as again:
        assert len(again.read("t").records) == 1


def test_a_log_in_memory_that_was_interrupted_says_so_until_it_is_closed() -> None:
    log = topics.open()
    assert isinstance(log, Log)
    with (
        mock.patch.object(log._engine, "drop", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.drop("t")
    for _ in range(2):
        with pytest.raises(Interrupted, match="in memory"):
            log.append("t", ROW)
    log.close()
    with pytest.raises(Closed):
        log.append("t", ROW)


def test_an_alarm_that_was_taken_for_the_disks_is_recovered_from_as_well(log: Log) -> None:
    """`TimeoutError` is an `OSError`: the log takes it for a failed sync and stops its shard."""
    with (
        mock.patch.object(type(log._engine.kernel.committer), "tick"),
        mock.patch("topics.storage.fs.RealFile.fdatasync", side_effect=TimeoutError),
        pytest.raises(LogFailed),
    ):
        log.append("t", ROW)
    log.append("t", ROW)
    assert log._engine.kernel.committer.state(0) is ShardState.OPEN
    assert [record.seq for record in log.read("t").records] == [1, 2]


def test_a_thread_that_waits_for_an_append_is_woken_after_a_recovery(log: Log) -> None:
    seen: list[int] = []

    def wait() -> None:
        seen.extend(record.seq for record in log.read("t", wait=60).records)

    reader = threading.Thread(target=wait)
    reader.start()
    while not log._bells:
        pass
    interrupted(log)
    log.append("t", ROW)
    reader.join()
    assert seen[0] == 1


def signalled(log: Log, call: Callable[[], object]) -> list[Interrupted]:
    """Make a signal handler make a call while the log writes; what it was told."""
    told: list[Interrupted] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            call()
        except Interrupted as error:
            told.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    sync = Shard.sync

    def signalling(shard: Shard) -> object:
        os.kill(os.getpid(), signal.SIGUSR1)
        return sync(shard)

    try:
        with mock.patch.object(Shard, "sync", signalling):
            log.append("t", ROW)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return told


def test_a_signal_handler_cannot_call_the_log_that_it_interrupts(log: Log) -> None:
    assert len(signalled(log, lambda: log.append("t", ROW))) == 1
    assert [record.seq for record in log.read("t").records] == [1]


def test_a_signal_handler_cannot_close_the_log_that_it_interrupts(log: Log) -> None:
    """What goes on afterwards would write to a directory that may be another's by then."""
    assert len(signalled(log, log.close)) == 1
    log.append("t", ROW)
    assert [record.seq for record in log.read("t").records] == [1, 2]


def test_a_log_that_nobody_was_given_lets_go_of_its_directory(tmp_path: Path) -> None:
    """As when an interrupt comes between the last step of `open` and the assignment."""
    topics.open(tmp_path / "log", background=True)
    topics.open(tmp_path / "log", background=True).close()


def test_a_close_that_is_interrupted_while_the_helper_ends_did_close(tmp_path: Path) -> None:
    log = topics.open(tmp_path / "log", background=True)
    assert isinstance(log, Log)
    assert log._helper is not None
    with (
        mock.patch.object(log._helper, "join", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.close()
    topics.open(tmp_path / "log").close()


def test_an_interrupted_view_needs_no_files_to_be_closed(log: Log, tmp_path: Path) -> None:
    view = topics.open(tmp_path / "log", read_only=True)
    assert isinstance(view, Log)
    view._look_at = _CHANGING
    with mock.patch("topics.embedded.view.open_view", side_effect=AssertionError):
        view.close()


def test_a_producer_goes_on_wherever_a_send_was_left() -> None:
    """Its thread must not wait for ever for what the interrupted caller holds."""
    place, came = 0, True
    with topics.open() as log:
        while came:
            place += 1
            producer = log.producer(f"t{place}", linger_ms=0)
            steps = Steps(KeyboardInterrupt, place)
            with suppress(KeyboardInterrupt), steps:
                producer.send("interrupted")
            producer.send("next")
            producer.flush(timeout=60)
            sent = [record.data for record in log.read(f"t{place}").records]
            assert sent in (["next"], ["interrupted", "next"]), steps.where
            producer.close()
            came = steps.came


def test_a_worker_that_is_interrupted_holds_up_none_of_its_handlers(log: Log) -> None:
    log.create("jobs", type="queue")
    worker = log.worker("jobs", lambda job: None)
    place, came = 0, True
    with ThreadPoolExecutor(1) as handlers:
        while came:
            place += 1
            steps = Steps(KeyboardInterrupt, place)
            with suppress(KeyboardInterrupt), steps:
                worker._await_room()
            assert handlers.submit(_takes, worker._lock).result(), steps.where
            came = steps.came


def _takes(lock: threading.RLock) -> bool:
    if not lock.acquire(timeout=60):
        return False
    lock.release()
    return True

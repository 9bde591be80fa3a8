"""An open that fails leaves nothing behind: no descriptor, no lock, no half-made claim."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.stores import fill, settings

from topics.embedded import Log
from topics.engine.recovery.opening import Opening, open_engine, open_view
from topics.engine.settings import EngineSettings
from topics.errors import RefusedToOpen, TopicsError
from topics.storage.fs import Fs, RealFs
from topics.storage.wal.inline import InlineCommitter
from topics.testing import FaultFs, ManualClock, PowerOff, SimDisk

STRIDE = 3
"""Every so many calls one is made to fail."""


def open_files(folder: Path) -> list[str]:
    """Files below a folder that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them is gone by now
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(f"{folder}/")]


def small(cold: Path) -> EngineSettings:
    return settings(wal_shards=2, cold_dir=str(cold), hot_retain_segments=1)


def opened(fs: Fs, place: Path) -> Log:
    opening = Opening(small(place / "cold"), ManualClock(), prealloc_start=4096)
    return Log(open_engine(fs, str(place / "data"), opening))


def make_store(place: Path) -> None:
    with opened(RealFs(), place) as log:
        fill(log)
    log = opened(RealFs(), place)
    log.append("fsync", {"data": "unclean"})
    log._engine.release()  # as if it had died: nothing is written on the way out
    committer = log._engine.kernel.committer
    assert isinstance(committer, InlineCommitter)
    for shard in committer._shards:
        shard.release()


def refuse_at_every_call(place: Path, *, read_only: bool, fresh: bool) -> int:
    """Fail one call after the other until none is left to fail; returns the refusals."""
    refused = 0
    for call in range(1, 10_000, STRIDE):
        twin = place / f"twin-{call}"
        if fresh:
            twin.mkdir()
        else:
            shutil.copytree(place / "store", twin)
        faults = FaultFs(RealFs())
        rule = faults.fail("*", errno.EIO, nth=call)
        try:
            if read_only:
                opening = Opening(small(twin / "cold"), ManualClock())
                Log(open_view(faults, str(twin / "data"), opening)).close()
            else:
                opened(faults, twin).close()
        except (RefusedToOpen, TopicsError):
            refused += 1
        assert not open_files(twin), f"call {call} ({faults.trace[-1]}) left a file open"
        shutil.rmtree(twin)
        if not rule.hits:
            return refused
    raise AssertionError("an open does not take that many calls")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_refused_open_closes_every_file(tmp_path: Path, read_only: bool) -> None:
    make_store(tmp_path / "store")
    assert refuse_at_every_call(tmp_path, read_only=read_only, fresh=False) > 10


def test_a_refused_birth_closes_every_file(tmp_path: Path) -> None:
    assert refuse_at_every_call(tmp_path, read_only=False, fresh=True) > 10


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_birth_with_a_cold_directory_may_end_anywhere_and_begin_again(how: str) -> None:
    def opening() -> Opening:
        return Opening(settings(cold_dir="/cold"), ManualClock(), prealloc_start=4096)

    counting = FaultFs(SimDisk())
    open_engine(counting, "/data", opening())
    for call in range(1, len(counting.trace) + 1):
        disk = SimDisk()
        fs = FaultFs(disk.mount())
        fs.stop_before(call, disk.kill if how == "kill" else disk.crash)
        with pytest.raises(PowerOff):
            open_engine(fs, "/data", opening())
        log = Log(open_engine(disk.mount(), "/data", opening()))
        log.append("t", {"data": call})
        log.close()
        assert disk.exists("/cold/.topics-cold")


def test_a_new_store_does_not_take_a_cold_directory_that_is_in_use() -> None:
    disk = SimDisk()
    opening = Opening(settings(cold_dir="/cold"), ManualClock(), prealloc_start=4096)
    Log(open_engine(disk, "/first", opening)).close()
    for path in ("/second", "/third"):
        with pytest.raises(RefusedToOpen) as refused:
            open_engine(disk, path, opening)
        assert refused.value.reason == "cold_missing"
    disk.put("/cold/.topics-cold.bak", disk.peek("/cold/.topics-cold"))
    disk.unlink("/cold/.topics-cold")
    with pytest.raises(RefusedToOpen):
        open_engine(disk, "/fourth", opening)

"""How far a recovery is: told from its first file to its last fact, and never less than before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topics.engine.effects import run
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.recovery.recover import SCAN_SHARE, Progress
from topics.engine.settings import EngineSettings
from topics.testing import ManualClock, SimDisk

DATA_DIR = "/data"
WAL = f"{DATA_DIR}/wal"


class InterruptedByTest(Exception):
    pass


def test_the_parts_make_one_share() -> None:
    told: list[float] = []
    progress = Progress(told.append)
    for group in range(2):
        progress.of_scan(group=group, groups=2)(0.5)
    progress.replayed(0.0)
    progress.replayed(1.0)
    assert told == pytest.approx([SCAN_SHARE / 4, SCAN_SHARE * 3 / 4, SCAN_SHARE, 1.0])


def opening(tell: Callable[[float], None]) -> Opening:
    return Opening(EngineSettings(wal_shards=2), ManualClock(), progress=tell)


def killed_store() -> SimDisk:
    """A disk whose log is all there is."""
    disk = SimDisk()
    engine = open_engine(disk.mount(), DATA_DIR, opening(lambda share: None))
    for number in range(20):
        run(engine.put(f"t{number}", {}))
    disk.kill()
    return disk


def test_reading_the_log_is_told_and_never_goes_back() -> None:
    told: list[float] = []
    open_engine(killed_store().mount(), DATA_DIR, opening(told.append))
    assert told == sorted(told)
    assert any(0 < share < SCAN_SHARE / 2 for share in told)
    assert told.count(SCAN_SHARE / 2) == 1, "the first of two groups is done"
    assert told[-1] >= SCAN_SHARE


def test_whoever_hears_of_it_can_end_a_recovery_and_nothing_has_changed() -> None:
    disk = killed_store()
    files = disk.mount().listdir(WAL)

    def end(share: float) -> None:
        raise InterruptedByTest

    with pytest.raises(InterruptedByTest):
        open_engine(disk.mount(), DATA_DIR, opening(end))
    assert disk.mount().listdir(WAL) == files
    again = open_engine(disk.mount(), DATA_DIR, opening(lambda share: None))
    assert len(again.kernel.catalog.by_id) == 20

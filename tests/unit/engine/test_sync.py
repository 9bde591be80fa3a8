"""`sync` makes what was acknowledged safe against the power, also against two cuts in a row."""

import pytest
from tests.unit.engine.builders import Store

from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.testing import FaultFs, PowerOff


def dies_while_opening(store: Store, call: int) -> bool:
    """Cut the power before a file call of the next opening; False if it needs fewer calls."""
    fs = FaultFs(store.disk.mount())
    fs.stop_before(call, lambda: store.disk.crash(mode="zero"))
    try:
        open_engine(fs, "/data", Opening(EngineSettings(**store.settings), store.clock))
    except PowerOff:
        return True
    return False


def test_a_power_cut_in_the_recovery_from_a_power_cut_takes_nothing_that_was_synced() -> None:
    for call in range(1, 60):
        store = Store()
        store.log.create("a", durability="disk")
        store.append("a", 1, 2, 3)
        store.log.sync()
        store.disk.crash(mode="none")
        if not dies_while_opening(store, call):
            return
        store.open()
        assert store.seqs("a") == [1, 2, 3]
    pytest.fail("opening never ends")


def test_a_power_cut_in_a_recovery_changes_nothing_that_an_earlier_recovery_noted() -> None:
    for call in range(1, 60):
        store = Store()
        store.log.create("a", durability="disk")
        store.append("a", 1)
        store.kill()
        before = store.log.audit("a")
        assert before.skipped > 0
        store.disk.kill()
        if not dies_while_opening(store, call):
            return
        store.open()
        assert store.log.audit("a") == before
    pytest.fail("opening never ends")


def test_an_idle_log_is_not_written_by_sync() -> None:
    store = Store()
    store.log.create("a")
    store.log.sync()
    before = store.disk.contents()
    store.log.sync()
    assert store.disk.contents() == before

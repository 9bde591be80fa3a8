"""Names of directories that a dead process made are synced by the one that goes on with them."""

import pytest
from tests.unit.engine.builders import Store

from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.testing import FaultFs, PowerOff


def killed_at(call: int, *, shards: int) -> tuple[Store, bool]:
    """A store whose first checkpoint died before a file call; whether it got that far."""
    store = Store()
    store.settings["wal_shards"] = shards
    store.log.create("a", durability="fsync")
    store.append("a", 1, 2, 3)
    store.disk.kill()
    fs = FaultFs(store.disk.mount())
    fs.stop_before(call, store.disk.kill)
    try:
        engine = open_engine(
            fs, "/data", Opening(EngineSettings(**store.settings), store.clock, prealloc_start=4096)
        )
        engine.checkpoint()
    except PowerOff:
        return store, True
    return store, False


@pytest.mark.parametrize("shards", [1, 2])
def test_a_directory_left_by_a_kill_survives_a_later_power_cut(shards: int) -> None:
    for call in range(1, 400):
        store, died = killed_at(call, shards=shards)
        if not died:
            return
        store.open()
        store.log.checkpoint()
        store.log.checkpoint()
        store.log.checkpoint()
        store.append("a", 4)
        store.lose_power()
        assert store.seqs("a") == [1, 2, 3, 4], f"after a kill before call {call}"
    pytest.fail("the checkpoint never ends")

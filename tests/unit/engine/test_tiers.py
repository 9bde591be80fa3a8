"""Old segments move to the cold directory, and every snapshot on disk still finds them."""

from tests.unit.engine.builders import Store

from topics.storage import layout


def tiered() -> Store:
    store = Store()
    store.settings |= {"cold_dir": "/cold", "hot_retain_segments": 1}
    store.restart()
    store.log.create("a", durability="fsync")
    return store


def cold_segments(store: Store) -> list[str]:
    return [path for path in store.disk.paths() if path.startswith("/cold/") and "seg-" in path]


def test_old_segments_move_once_two_snapshots_know_them_as_sealed() -> None:
    store = tiered()
    for _ in range(3):
        store.append("a", *range(8))
        store.log.checkpoint()
    store.log.maintain()
    assert cold_segments(store)
    assert store.seqs("a") == list(range(1, 25))
    store.kill()
    assert store.seqs("a") == list(range(1, 25))


def test_the_older_snapshot_serves_after_a_segment_it_saw_growing_was_sealed() -> None:
    store = tiered()
    store.append("a", 1)
    store.log.checkpoint()
    store.append("a", *range(2, 20))
    store.log.checkpoint()
    store.log.maintain()
    newest = max(path for path in store.disk.paths() if layout.META in path and "snapshot" in path)
    store.disk.unlink(newest)
    store.disk.settle()
    store.kill()
    assert store.seqs("a") == list(range(1, 20))

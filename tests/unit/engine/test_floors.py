"""Floors that pass seqs of which nothing is left."""

from tests.unit.engine.builders import Store


def test_a_floor_may_rise_to_a_seq_that_no_segment_and_no_log_holds() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1)
    store.restart()
    store.restart()
    store.log.configure("a", durability="memory")
    store.lose_power()
    assert store.log.audit("a").evict_floor == 2
    assert store.log.audit("a").adds_up


def test_reading_from_a_time_announces_loss_of_which_only_the_floor_is_left() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1, 2)
    wanted = store.clock.now_ms()
    store.restart()
    page = store.log.read("a", from_ts=wanted)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (1, 2)

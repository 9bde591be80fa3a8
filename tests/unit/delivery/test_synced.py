"""Streams that deliver only what the log has synced."""

from tests.unit.delivery.builders import Peer, World

from topics.delivery.pages import Options
from topics.delivery.synced import MAX_WAITING

STRONG = Options(strong=True)


def record_seqs(peer: Peer) -> list[int]:
    return [
        record["$seq"]
        for event in peer.events()
        if event.event == "record"
        for record in event.data["records"]
    ]


def sync(world: World) -> None:
    """Let the log sync its tail, and a look at it come due."""
    world.engine.sync()
    world.advance(10)


def test_a_strong_stream_waits_for_the_sync_and_an_eventual_one_does_not(on_disk: World) -> None:
    strong, eventual = on_disk.watch("orders", options=STRONG), on_disk.watch("orders")
    on_disk.append("orders", 1, 2)
    assert record_seqs(eventual) == [1, 2]
    assert record_seqs(strong) == []
    sync(on_disk)
    assert record_seqs(strong) == [1, 2]


def test_a_strong_stream_reports_the_synced_head(on_disk: World) -> None:
    peer = on_disk.watch("orders", options=STRONG)
    on_disk.append("orders", 1)
    sync(on_disk)
    on_disk.append("orders", 2)
    on_disk.append("orders", 3)
    record, caught_up = peer.events()[-2:]
    assert record.data["head_seq"] == 1
    assert caught_up.data == {"topic": "orders", "head_seq": 1}
    sync(on_disk)
    record, caught_up = peer.events()
    assert [r["$seq"] for r in record.data["records"]] == [2, 3]
    assert caught_up.data["head_seq"] == 3


def test_a_write_that_is_synced_anyway_is_delivered_at_once(on_disk: World) -> None:
    on_disk.put("payments", durability="fsync")
    peer = on_disk.watch("payments", options=STRONG)
    on_disk.append("payments", 1)
    assert record_seqs(peer) == [1]


def test_an_ephemeral_topic_has_nothing_to_wait_for(on_disk: World) -> None:
    on_disk.put("ticks", durability="ephemeral")
    peer = on_disk.watch("ticks", options=STRONG)
    on_disk.append("ticks", 1)
    assert record_seqs(peer) == [1]


def test_a_stream_opened_between_write_and_sync_waits_too(on_disk: World) -> None:
    on_disk.append("orders", 1)
    peer = on_disk.watch("orders", options=STRONG)
    assert record_seqs(peer) == []
    sync(on_disk)
    assert record_seqs(peer) == [1]


def test_a_recreated_topic_starts_counting_anew(on_disk: World) -> None:
    on_disk.append("orders", 1, 2, 3)
    sync(on_disk)
    peer = on_disk.watch("orders", options=STRONG)
    peer.events()
    on_disk.recreate("orders", 2)
    assert record_seqs(peer) == []
    sync(on_disk)
    assert record_seqs(peer) == [1, 2]


def test_a_sync_wakes_no_long_poll(on_disk: World) -> None:
    on_disk.watch("orders", options=STRONG)
    on_disk.append("orders", 1)
    seen: list[bool] = []
    on_disk.delivery.changes.poll("orders", 30_000).then(seen.append)
    sync(on_disk)
    assert seen == []


def test_the_look_at_the_log_stops_when_everything_is_synced(on_disk: World) -> None:
    peer = on_disk.watch("orders", options=STRONG)
    on_disk.append("orders", 1)
    sync(on_disk)
    assert on_disk.clock.pending() == 1, "the heartbeat"
    peer.leave()
    assert on_disk.clock.pending() == 0


def test_many_writes_between_two_syncs_are_remembered_in_bounded_space(on_disk: World) -> None:
    peer = on_disk.watch("orders", options=STRONG)
    for n in range(MAX_WAITING + 10):
        on_disk.append("orders", n)
    followed = on_disk.delivery.synced._followed["orders"]
    assert len(followed.waiting) <= MAX_WAITING
    sync(on_disk)
    assert record_seqs(peer) == list(range(1, MAX_WAITING + 11))

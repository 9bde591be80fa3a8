"""One read and one rendering for everybody at the same place."""

from tests.unit.delivery.builders import World

from topics.core.facts import Match
from topics.delivery.pages import Options, PageCache, Rendered, cut
from topics.engine.effects import run
from topics.values import Page, Record, Tombstone


def test_two_hundred_watchers_share_one_read_and_one_frame(world: World) -> None:
    world.delivery.sessions._max_sessions = 0
    peers = [world.watch("orders") for _ in range(200)]
    reads = world.delivery.pages.reads
    world.append("orders", {"n": 1})
    assert world.delivery.pages.reads == reads + 1
    frames = {id(peer.chunks[-1]) for peer in peers}
    assert len(frames) == 1, "the very same bytes"
    assert peers[0].names()[-2:] == ["record", "caught-up"]


def test_watchers_of_several_topics_share_the_read_though_their_ids_differ(world: World) -> None:
    world.put("audit")
    alone, both = world.watch("orders"), world.watch("orders", "audit")
    reads = world.delivery.pages.reads
    world.append("orders", 1)
    assert world.delivery.pages.reads == reads + 1
    assert alone.events()[-1].positions == {"orders": 1}
    assert both.events()[-1].positions == {"audit": 0, "orders": 1}


def test_watchers_that_want_different_things_get_different_pages(world: World) -> None:
    everything = world.watch("orders")
    others = world.watch("orders", options=Options(nodes=frozenset({"me"})))
    everything.events(), others.events()
    world.append("orders", 1, node="me")
    assert everything.names() == ["record", "caught-up"]
    assert others.names() == []


def test_a_read_under_way_is_joined(world: World) -> None:
    peers = [world.watch("orders") for _ in range(3)]
    reads = world.delivery.pages.reads
    world.runner.held = True
    world.append("orders", 1)
    world.runner.release()
    world.settle()
    assert world.delivery.pages.reads == reads + 1
    assert [peer.names()[-2:] for peer in peers] == [["record", "caught-up"]] * 3


def test_a_deleted_record_is_not_delivered_from_the_cache(world: World) -> None:
    world.append("orders", 1, 2)
    world.watch("orders")
    run(world.engine.delete("orders", before=2, match=None))
    late = world.watch("orders")
    assert [r["$seq"] for r in late.events()[1].data["records"]] == [2]


def test_an_expired_record_is_not_delivered_from_the_cache(world: World) -> None:
    world.put("orders", ttl_ms=1000)
    world.append("orders", 1)
    world.watch("orders")
    world.advance(1001)
    late = world.watch("orders")
    assert late.names() == ["retry", "tombstone", "caught-up"]


def test_the_cache_is_bounded_in_bytes(world: World) -> None:
    pages = PageCache(world.engine, world.runner, max_bytes=10_000)
    world.delivery.pages = pages
    world.append("orders", *["x" * 500] * 40)
    world.watch("orders", options=Options(limit=1))
    assert 0 < pages._bytes <= 10_000
    assert pages._bytes == sum(entry.size for entry in pages._entries.values())
    world.watch("orders", options=Options(limit=40))
    assert all(entry.size <= 2500 for entry in pages._entries.values())


def test_options_bring_sizes_into_their_ranges() -> None:
    assert Options.clamped(limit=0, budget=0, max_limit=1000) == Options(256, 1 << 20)
    huge = Options.clamped(limit=5000, budget=1 << 40, max_limit=1000)
    assert (huge.limit, huge.budget) == (1000, 8 << 20)
    assert hash(Options(match=Match("a"))) == hash(Options(match=Match("a")))


# What a sync has covered


def page(*seqs: int, head: int, lost: tuple[int, int] | None = None, reason: str = "cap") -> Page:
    records = [Record(seq, 0, None, None, b"1") for seq in seqs]
    earliest = 1 if reason == "recreated" else (lost[1] + 1 if lost else 1)
    tombstone = lost and Tombstone(*lost, reason, earliest, head)  # type: ignore[arg-type]
    reached = seqs[-1] if seqs else (lost[1] if lost else head)
    return Page("orders", records, reached, head, earliest, reached == head, tombstone)


def test_a_page_is_cut_at_the_synced_head() -> None:
    shown = cut(page(1, 2, 3, head=3), 2)
    assert shown is not None
    assert [record.seq for record in shown.records] == [1, 2]
    assert (shown.next_from_seq, shown.head_seq, shown.caught_up) == (2, 2, True)
    whole = page(1, 2, head=2)
    assert cut(whole, 2) is whole


def test_loss_beyond_the_synced_head_is_not_told_yet() -> None:
    assert cut(page(4, head=4, lost=(1, 3)), 2) is None
    shown = cut(page(4, 5, head=5, lost=(1, 3)), 4)
    assert shown is not None
    assert shown.tombstone == Tombstone(1, 3, "cap", 4, 4)


def test_a_recreated_topic_is_told_with_the_synced_head() -> None:
    shown = cut(page(1, 2, 3, head=3, lost=(1, 3), reason="recreated"), 1)
    assert shown is not None
    assert shown.tombstone == Tombstone(1, 1, "recreated", 1, 1)
    assert Rendered(shown, Options().include, 3).resume == 0


def test_a_full_page_stays_right_while_its_topic_grows(world: World) -> None:
    world.append("orders", 1, 2)
    first = world.watch("orders", options=Options(limit=1))
    reads = world.delivery.pages.reads
    world.append("orders", 3)
    late = world.watch("orders", options=Options(limit=1))
    records = [event.data for event in late.events() if event.event == "record"]
    assert [record["head_seq"] for record in records] == [3, 3, 3], "the head is the present one"
    assert len([e for e in first.events() if e.event == "record"]) == 3
    assert world.delivery.pages.reads == reads + 1, "only the new record was read"


def test_a_page_for_strong_readers_does_not_grow(world: World) -> None:
    world.append("orders", 1)
    strong = Options(limit=1, strong=True)
    world.watch("orders", options=strong)
    world.append("orders", 2)
    late = world.watch("orders", options=strong)
    heads = [e.data["head_seq"] for e in late.events() if e.event == "record"]
    assert heads == [2, 2]

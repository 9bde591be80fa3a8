"""How much a topic may have lost in a damaged log, judged from what is left of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topics.core.catalog import Catalog
from topics.core.config import parse
from topics.core.durability import EPHEMERAL_BLOCK
from topics.core.facts import Fact, Forwarded, RouterCreated
from topics.core.routers import Router
from topics.core.tail import NoHistory
from topics.core.topic import Topic
from topics.engine.recovery.lost_tails import LostTails
from topics.engine.routers.passes import PASS_RECORDS
from topics.storage import layout
from topics.storage.wal.scan import GenerationScan, LostFrames

GENERATION = 2
DAMAGE = LostFrames(behind=10, frames=3)
BLOCK = EPHEMERAL_BLOCK + 100_000


def nothing(generation: int, lfn: int, topic_id: int) -> bool:
    """A store without a snapshot."""
    return False


def catalog_of(**classes: str) -> Catalog:
    catalog = Catalog(max_keys=1, history=lambda topic_id: NoHistory())
    for topic_id, (name, durability) in enumerate(classes.items(), 1):
        config = parse({"durability": durability}, topic=name)
        catalog.add(catalog.new_topic(topic_id, name, topic_id, config))
    return catalog


def scanned(*lost: LostFrames, facts: tuple[Fact, ...] = ()) -> GenerationScan:
    entries = list(enumerate(facts, 1))
    return GenerationScan(GENERATION, 0, 1, b"", entries=entries, lost=list(lost))


def judged(
    topic: Topic, catalog: Catalog, *parts: GenerationScan, doubts: LostTails | None = None
) -> int:
    doubts = doubts or LostTails(nothing, ())
    doubts.weigh(parts or (scanned(DAMAGE),), catalog)
    return doubts.of(topic)


def test_nothing_is_doubted_in_a_sound_log() -> None:
    catalog = catalog_of(a="fsync", b="ephemeral")
    assert [judged(topic, catalog, scanned()) for topic in catalog] == [0, 0]


@pytest.mark.parametrize(
    ("durability", "seqs"), [("fsync", 1), ("disk", 1), ("memory", 1), ("ephemeral", BLOCK)]
)
def test_every_lost_frame_may_have_been_a_record_or_a_reservation(
    durability: str, seqs: int
) -> None:
    catalog = catalog_of(a=durability)
    assert judged(catalog.by_name["a"], catalog) == 3 * seqs


def test_all_places_count_in_which_nothing_is_settled() -> None:
    catalog = catalog_of(a="fsync")
    damaged = scanned(DAMAGE, LostFrames(20, 4), LostFrames(30, 5))
    doubts = LostTails(nothing, ())
    doubts.settle(1, GENERATION, 15)
    assert judged(catalog.by_name["a"], catalog, damaged, doubts=doubts) == 9


@pytest.mark.parametrize(
    ("place", "seqs"),
    [
        ((GENERATION, 10), 3),
        ((GENERATION, 14), 0),
        ((GENERATION - 1, 99), 3),
        ((GENERATION + 1, 1), 0),
        ((GENERATION,), 0),
    ],
)
def test_only_what_is_logged_behind_the_damage_settles_it(
    place: tuple[int, ...], seqs: int
) -> None:
    catalog, doubts = catalog_of(a="fsync"), LostTails(nothing, ())
    doubts.settle(1, *place)
    assert judged(catalog.by_name["a"], catalog, doubts=doubts) == seqs


@pytest.mark.parametrize(("captured", "seqs"), [(12, 3), (13, 0)])
def test_what_the_snapshot_contains_is_not_lost(captured: int, seqs: int) -> None:
    catalog = catalog_of(a="fsync")
    doubts = LostTails(lambda generation, lfn, topic_id: lfn <= captured, ())
    assert judged(catalog.by_name["a"], catalog, doubts=doubts) == seqs


def test_only_topics_of_the_damaged_shard_are_doubted() -> None:
    catalog = catalog_of(**{f"t{number}": "fsync" for number in range(20)})
    part = GenerationScan(GENERATION, shard=1, shards=3, boot_id=b"", lost=[DAMAGE])
    doubts = LostTails(nothing, ())
    doubts.weigh([part], catalog)
    hit = {topic.id for topic in catalog if doubts.of(topic)}
    assert hit == {topic.id for topic in catalog if layout.shard_of(topic.id, 3) == 1}
    assert 0 < len(hit) < 20


def created(source_id: int, dest_id: int) -> RouterCreated:
    return RouterCreated(
        0, "r", "a", "b", source_id, dest_id, True, True, True, False, False, None, 0, 0
    )


def passed(source_id: int, dest_id: int) -> Forwarded:
    return Forwarded(dest_id, 0, "r", source_id, True, True, True, False, False, 1, 1, 1, ())


@pytest.mark.parametrize("fact", [created, passed])
def test_a_lost_frame_may_be_a_pass_wherever_routers_ever_led(
    fact: Callable[[int, int], Fact],
) -> None:
    catalog = catalog_of(a="fsync", b="fsync")
    part = scanned(DAMAGE, facts=(fact(1, 2),))
    assert judged(catalog.by_name["a"], catalog, part) == 3
    assert judged(catalog.by_name["b"], catalog, part) == 3 * PASS_RECORDS
    of_snapshot = LostTails(nothing, (2,))
    assert judged(catalog.by_name["b"], catalog, doubts=of_snapshot) == 3 * PASS_RECORDS


def test_one_pass_may_stand_for_all_that_its_source_lost() -> None:
    catalog = catalog_of(a="ephemeral", b="fsync")
    catalog.routers.add(Router("r", "a", "b", 1, 2, cursor=5))
    catalog.by_name["a"].reserved = 70_005
    doubts = LostTails(nothing, (2,))
    assert judged(catalog.by_name["b"], catalog, doubts=doubts) == 3 * PASS_RECORDS + 70_000


def test_a_topic_that_was_ephemeral_may_have_been_as_far_as_its_ceiling() -> None:
    catalog, doubts = catalog_of(a="ephemeral"), LostTails(nothing, ())
    topic = catalog.by_name["a"]
    topic.reserved = 1000
    doubts.leave_volatile(topic)
    topic.apply_config(parse({"durability": "fsync"}, topic="a"))
    assert judged(topic, catalog, doubts=doubts) == 1000 + 3 * BLOCK

"""Routers: created, changed, dropped, and moved on by the passes of a replayed generation."""

from topics.core.facts import Forwarded, Match, RouterCreated, RouterDeleted
from topics.core.routers import Routers


def created(
    name: str = "r", source_id: int = 1, dest_id: int = 2, cursor: int = 0, **knobs: bool
) -> RouterCreated:
    return RouterCreated(
        ts=1,
        name=name,
        source=f"t{source_id}",
        dest=f"t{dest_id}",
        source_id=source_id,
        dest_id=dest_id,
        preserve_node=knobs.get("preserve_node", True),
        preserve_tag=True,
        create_dest=True,
        allow_cycle=False,
        exactly_once=knobs.get("exactly_once", False),
        match=Match("x"),
        initial_cursor=cursor,
        initial_dest_base=9,
    )


def moved(
    cursor: int, total: int, name: str = "r", source_id: int = 1, dest_id: int = 2
) -> Forwarded:
    return Forwarded(
        topic_id=dest_id,
        ts=1,
        router=name,
        source_id=source_id,
        preserve_node=True,
        preserve_tag=True,
        create_dest=True,
        allow_cycle=False,
        exactly_once=False,
        dest_first=1,
        cursor=cursor,
        forwarded_total=total,
        runs=(),
    )


def test_a_router_starts_where_its_creation_says() -> None:
    routers = Routers()
    routers.create(created(cursor=5))
    router = routers.by_name["r"]
    assert (router.cursor, router.forwarded_total, router.dest_base) == (5, 0, 9)
    assert [r.name for r in routers.out_of(1)] == [r.name for r in routers.into(2)] == ["r"]


def test_the_same_router_again_keeps_its_progress_and_takes_new_knobs() -> None:
    routers = Routers()
    routers.create(created(cursor=5))
    routers.settle([moved(8, 3)], {1: 100})
    routers.create(created(cursor=6, preserve_node=False))
    router = routers.by_name["r"]
    assert (router.cursor, router.forwarded_total, router.preserve_node) == (8, 3, False)


def test_a_name_between_other_topics_is_another_router() -> None:
    routers = Routers()
    routers.create(created(cursor=5))
    routers.create(created(dest_id=3, cursor=1))
    assert routers.by_name["r"].cursor == 1
    assert routers.into(2) == []
    routers.drop(RouterDeleted(1, "r", 1, 2))
    assert "r" in routers.by_name
    routers.drop(RouterDeleted(1, "r", 1, 3))
    assert "r" not in routers.by_name


def test_passes_of_an_earlier_router_of_the_name_do_not_count() -> None:
    routers = Routers()
    routers.create(created(cursor=5))
    routers.settle([moved(4, 40), moved(7, 2), moved(9, 9, source_id=8)], {1: 100})
    assert (routers.by_name["r"].cursor, routers.by_name["r"].forwarded_total) == (7, 2)


def test_a_cursor_never_stands_past_its_source() -> None:
    routers = Routers()
    routers.create(created(cursor=0))
    routers.settle([moved(7, 7)], {1: 4})
    assert routers.by_name["r"].cursor == 4


def test_routers_of_topics_that_are_gone_are_dropped() -> None:
    routers = Routers()
    routers.create(created("r1"))
    routers.create(created("r2", source_id=2, dest_id=3))
    assert routers.touching(2) == ["r1", "r2"]
    routers.drop_orphans({1, 2})
    assert set(routers.by_name) == {"r1"}
    assert routers.touching(3) == []


def test_a_way_is_found_though_topics_are_reached_twice_or_lead_nowhere() -> None:
    routers = Routers()
    for number, (source_id, dest_id) in enumerate([(1, 2), (1, 3), (2, 4), (3, 4), (4, 5)]):
        routers.create(created(f"r{number}", source_id=source_id, dest_id=dest_id))
    assert routers.path("t1", "t5", leaving_out="") == ["t1", "t2", "t4", "t5"]
    assert routers.path("t1", "t5", leaving_out="r4") is None


def test_a_generation_that_did_not_reach_a_source_leaves_its_cursor_alone() -> None:
    routers = Routers()
    routers.create(created(cursor=5))
    routers.settle([], {7: 1})
    assert routers.by_name["r"].cursor == 5

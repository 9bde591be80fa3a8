"""Minutes of load on thousands of topics, in virtual time: who waits, how long, and what recovers.

A push costs a millisecond here, many times what it costs in truth, so that a small flood of writes
is already far more than the server can pass on.
"""

from __future__ import annotations

import pytest
from tests.property.load_world import PUSH_US, LoadWorld

from topics.server.governor import LONGEST_GATHER_MS
from topics.server.scheduler import WEIGHTS

ROUND_MS = sum(WEIGHTS) * PUSH_US / 1000
"""The longest a round can take."""


@pytest.mark.parametrize(("seed", "writes_per_s"), [(1, 900), (2, 900), (3, 4000)])
def test_a_flood_of_lesser_topics_costs_urgent_ones_no_more_than_the_windows(
    seed: int, writes_per_s: int
) -> None:
    alone, flooded = LoadWorld(seed), LoadWorld(seed)
    for world in (alone, flooded):
        world.write_to(world.topics("urgent", 1, priority=1000), per_s=50)
        world.write_to(world.topics("usual", 20, priority=600), per_s=50)
    flooded.write_to(flooded.topics("flood", 3000, priority=0), per_s=writes_per_s)
    alone.run(seconds=30)
    flooded.run(seconds=30)
    assert flooded.pump.pressure == 1
    for group in ("urgent", "usual"):
        moved_ms = flooded.delay_ms(group, 0.99) - alone.delay_ms(group, 0.99)
        assert moved_ms <= LONGEST_GATHER_MS + ROUND_MS
    # The flood itself is served too: nobody waits longer than it takes to serve everybody.
    assert flooded.longest_wait_ms("flood") <= 3000 * 1.6 * PUSH_US / 1000


def test_topics_starved_by_urgent_ones_are_served_within_the_age_limit() -> None:
    world = LoadWorld(seed=1)
    world.write_to(world.topics("urgent", 300, priority=1000), per_s=3000)
    world.write_to(world.topics("idle", 700, priority=0), per_s=700)
    world.run(seconds=40)
    assert world.longest_wait_ms("idle") <= 10_000
    assert world.delay_ms("urgent", 0.5) < world.delay_ms("idle", 0.5)
    assert len(world.delays_ms["urgent"]) > 2 * len(world.delays_ms["idle"])


def test_under_lasting_pressure_low_priorities_are_withheld_and_get_everything_after() -> None:
    world = LoadWorld(seed=1)
    background = world.topics("background", 200, priority=-300)
    world.write_to(background, per_s=100)
    world.write_to(world.topics("flood", 2000, priority=0), per_s=2000)
    world.run(seconds=5)
    assert world.pump.scheduler.deferred
    pushed = len(world.delays_ms["background"])
    world.run(seconds=20)
    assert len(world.delays_ms["background"]) == pushed
    # Their readers hear of it, at the pace of the samples and not of the writes.
    assert 0 < world.advice["background"] <= 100 * 25
    world.stop_writing()
    world.run(seconds=10)
    assert world.waiting_us == {}
    assert {topic.name for topic in background} == {
        name for name in world.pushed_names if name.startswith("background")
    }


def test_an_overload_leaves_nothing_behind() -> None:
    world = LoadWorld(seed=1)
    world.write_to(world.topics("flood", 2000, priority=0), per_s=5000)
    world.run(seconds=10)
    assert world.mode_changes != []
    world.stop_writing()
    world.run(seconds=10)
    assert world.pump.pressure == 0
    assert not world.pump.scheduler.deferred
    assert world.engine.kernel.host.pace_ms is None
    assert world.machine.is_asleep


def test_pressure_that_comes_from_low_priorities_alone_does_not_flutter() -> None:
    world = LoadWorld(seed=1)
    world.write_to(world.topics("background", 2000, priority=-10), per_s=3000)
    world.run(seconds=30)
    # Withholding them ends the pressure, letting them go brings it back: at most three samples
    # to notice the one, and one to notice the other.
    assert len(world.mode_changes) <= 30 / 0.2
    assert len(world.delays_ms["background"]) > 30 * 200
    world.stop_writing()
    world.run(seconds=10)
    assert world.waiting_us == {}
    assert world.machine.is_asleep


def test_a_stalled_log_is_felt_at_once_and_forgotten_soon() -> None:
    world = LoadWorld(seed=1)
    (background,) = world.topics("background", 1, priority=-1)
    (normal,) = world.topics("normal", 1, priority=0)
    world.work.in_flight = 1
    world.work.on_wait()
    world.log.share = 1.0
    assert world.pump.pressure == 1
    assert world.pump.retry_after_ms() == 1000
    world.run(seconds=0.5)
    pace_ms = world.engine.kernel.host.pace_ms
    assert pace_ms is not None
    assert (pace_ms(background), pace_ms(normal)) == (20, 0)
    assert world.pump.retry_after_ms() == 5000
    world.log.share = 0.0
    world.work.in_flight = 0
    world.run(seconds=0.5)
    assert world.pump.pressure == 0
    assert world.engine.kernel.host.pace_ms is None
    assert world.machine.is_asleep


def test_a_moderate_load_is_passed_on_without_any_brake() -> None:
    world = LoadWorld(seed=1, push_us=100)
    world.write_to(world.topics("steady", 2000, priority=0), per_s=500)
    world.run(seconds=30)
    assert world.delay_ms("steady", 0.99) < 2
    assert world.mode_changes == []
    assert world.pump.governor.is_calm

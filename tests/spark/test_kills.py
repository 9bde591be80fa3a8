"""Exactly once, whoever is killed and whenever: into topics and into a Delta table.

One driver runs both sinks. It is killed before, during and after a commit, and started again each
time with another number of partitions; then the server is killed between stage and commit. What
was written must be there, once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.blackbox.conftest import ServerProcess
from tests.spark.copying_world import BOTH, ROWS, World
from tests.spark.proxy import Matches, Proxy, Request

from topics.spark.lake.locking import committing
from topics.spark.lake.place import Place


def commit_of(batch: int) -> Matches:
    return lambda request: request.path.endswith(f"/{batch}/commit")


def anything(_: Request) -> bool:
    return True


@pytest.mark.timeout(1500)
def test_every_row_lands_once_through_kills_of_driver_and_server(
    server: ServerProcess, tmp_path: Path
) -> None:
    with Proxy(server.address) as proxy, Proxy(server.address) as table_proxy:
        world = World(server, tmp_path, proxy, table_proxy)
        kill_before_a_commit(world)
        kill_during_a_commit(world)
        kill_after_a_commit(world)
        kill_the_server_between_stage_and_commit(world)
        world.check(rows=4 * ROWS)
        world.check_what_spark_counted(rows=4 * ROWS)


def kill_before_a_commit(world: World) -> None:
    """Batch 1 is staged, its files are written, and nobody has heard of them."""
    with world.driver(partitions=2) as driver:
        world.feed()
        driver.wait_for_batch(0, *BOTH)
        commit = world.proxy.hold(commit_of(1))
        with committing(Place.of(str(world.table))):
            world.feed()
            driver.wait_for_held(commit)
            driver.wait_until(lambda: bool(world.staged_files(1)), "files of batch 1")
            world.check(rows=ROWS)
            driver.kill_jvm()
        commit.cut_off()


def kill_during_a_commit(world: World) -> None:
    """Batch 1 is committed, but the driver does not know; now with other partitions."""
    commit = world.proxy.hold(commit_of(1), answered=True)
    follow_up = world.table_proxy.hold(anything)
    with world.driver(partitions=3) as driver:
        driver.wait_for_held(commit)
        driver.wait_for_held(follow_up)
        world.check(rows=2 * ROWS)
        assert not any(driver.has_batch(1, query) for query in BOTH)
        driver.kill_jvm()
    commit.cut_off()
    follow_up.cut_off()


def kill_after_a_commit(world: World) -> None:
    """Batch 1 comes again and is known; batch 2 is done for everybody."""
    with world.driver(partitions=1) as driver:
        driver.wait_for_batch(1, *BOTH)
        world.check(rows=2 * ROWS)
        world.feed()
        driver.wait_for_batch(2, *BOTH)
        driver.kill_jvm()
    world.check(rows=3 * ROWS)


def kill_the_server_between_stage_and_commit(world: World) -> None:
    """The stages of batch 3 outlive the server; the driver notices nothing but a pause."""
    world.feed()
    commit = world.proxy.hold(commit_of(3))
    follow_up = world.table_proxy.hold(anything)
    with world.driver(partitions=4, is_endless=False) as driver:
        driver.wait_for_held(commit)
        world.restart_server()
        commit.let_go()
        follow_up.let_go()
        driver.finish()

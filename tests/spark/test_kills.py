"""Exactly once, whoever is killed and whenever: into topics and into Delta tables.

A driver runs two copies, of two sinks each, so that one kill meets them before, during and after a
commit. It is killed twice, and started again each time with another number of partitions; the last
start is in the session of all tests, and there the server is killed between stage and commit. What
was written must be there, once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.blackbox.conftest import ServerProcess
from tests.spark.copying_driver import counted, start_copies
from tests.spark.copying_world import ROWS, World
from tests.spark.proxy import PATIENCE_S, Held, Matches, Request

from topics.spark.lake.certifying import certify
from topics.spark.lake.place import committing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(1500)


def commit_of(batch: int) -> Matches:
    return lambda request: request.path.endswith(f"/{batch}/commit")


def anything(_: Request) -> bool:
    return True


def test_every_row_lands_once_through_kills_of_driver_and_server(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with World(server, tmp_path, "first", "second") as world:
        kill_before_during_and_after_a_commit(world)
        kill_with_the_roles_changed(world)
        kill_the_server_between_stage_and_commit(world, spark)
        for copy in world.copies:
            copy.check(in_topics=4 * ROWS, in_table=4 * ROWS)
            assert certify(copy.place).to_dict()["complete"], certify(copy.place)
            assert counted(spark, copy.asked, url=server.url) == [4 * ROWS, 4 * ROWS]
            assert counted(spark, copy.asked, path=str(server.data_dir)) == [4 * ROWS, 4 * ROWS]


def kill_before_during_and_after_a_commit(world: World) -> None:
    """Of batch 1. The topics of the first copy have it staged and nobody has heard of it; its table
    has it, and the driver does not know; the second copy is done with it."""
    first, second = world.copies
    world.feed()  # before the driver looks for the topic
    with world.driver(world.asked(partitions=2, is_endless=True)) as driver:
        driver.wait_for_batch(0, first.topics, first.table, second.topics, second.table)
        commit, follow_up = first.proxy.hold(commit_of(1)), first.table_proxy.hold(anything)
        world.feed()
        driver.wait_for_held(commit)
        driver.wait_for_held(follow_up)
        driver.wait_for_batch(1, second.topics, second.table)
        first.check(in_topics=ROWS, in_table=2 * ROWS)
        second.check(in_topics=2 * ROWS, in_table=2 * ROWS)
        assert not driver.has_batch(1, first.topics)
        assert not driver.has_batch(1, first.table)
        driver.kill_jvm()
    commit.cut_off()
    follow_up.cut_off()


def kill_with_the_roles_changed(world: World) -> None:
    """Batch 1 comes again, in other partitions. Now the topics have it, and the driver does not
    know. The table recognises it, and has written files of batch 2 that are in no log."""
    first, second = world.copies
    commit = first.proxy.hold(commit_of(1), answered=True)
    with world.driver(world.asked(partitions=3, is_endless=True)) as driver:
        driver.wait_for_held(commit)
        driver.wait_for_batch(1, first.table)
        with committing(first.place):
            world.feed()
            driver.wait_until(lambda: bool(first.staged_files(2)), "files of batch 2")
            driver.wait_for_batch(2, second.topics, second.table)
            first.check(in_topics=2 * ROWS, in_table=2 * ROWS)
            second.check(in_topics=3 * ROWS, in_table=3 * ROWS)
            assert not driver.has_batch(1, first.topics)
            assert not driver.has_batch(2, first.table)
            driver.kill_jvm()
    commit.cut_off()


def kill_the_server_between_stage_and_commit(world: World, spark: SparkSession) -> None:
    """The stages of batch 3 outlive the server; the queries notice nothing but a pause."""
    world.feed()
    commits = [copy.proxy.hold(commit_of(3)) for copy in world.copies]
    follow_ups = [copy.table_proxy.hold(anything) for copy in world.copies]
    queries = start_copies(spark, world.asked(partitions=4))
    try:
        for commit in commits:
            wait_for(commit, queries)
        world.restart_server()
        for held in (*commits, *follow_ups):
            held.let_go()
        for query in queries:
            assert query.awaitTermination(int(PATIENCE_S)), "the query takes too long"
    finally:
        for query in queries:
            query.stop()


def wait_for(held: Held, queries: Sequence[StreamingQuery]) -> None:
    """Wait until a request of a running query is held."""
    deadline = time.monotonic() + PATIENCE_S
    while not held.requests:
        for query in queries:
            assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "nothing was held"
        time.sleep(0.05)

"""Topics on a real Spark cluster: source, sink and lake on executors that can be killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.blackbox.conftest import ServerProcess
from tests.spark.cluster import WORKERS, Cluster
from tests.spark.conftest import CONF
from tests.spark.copying_world import ROWS, World
from tests.spark.proxy import Proxy, Request

_STAGE = re.compile(r"/v0/stages/[^/]+/\d+/(\d+)/\d+")


def is_stage(request: Request) -> bool:
    return _STAGE.fullmatch(request.path) is not None


@pytest.mark.timeout(1500)
def test_an_executor_killed_in_the_middle_of_its_stage_costs_and_adds_no_row(
    server: ServerProcess, tmp_path: Path
) -> None:
    """Both executors hold a stage that the server has and they do not know of; one is killed.

    Each has one core, so the two requests are from different ones.
    """
    conf = CONF | {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    with (
        Cluster(tmp_path) as cluster,
        Proxy(server.address) as proxy,
        Proxy(server.address) as table_proxy,
    ):
        world = World(server, tmp_path, proxy, table_proxy)
        world.feed()
        stages = proxy.hold(is_stage, answered=True)
        with world.driver(
            partitions=2, is_endless=False, master=cluster.master, conf=conf
        ) as driver:
            held = driver.wait_for_held(stages, WORKERS)
            assert len({request.path for request in held}) == WORKERS
            executors = cluster.executors()
            assert len(executors) == WORKERS
            assert driver.jvm not in executors
            cluster.kill_executor()
            stages.let_go()
            driver.finish()
        staged = [request for request in proxy.seen if is_stage(request)]
        assert len(staged) > WORKERS, "the lost task has staged again, under another name"
        world.check(rows=ROWS)
        world.check_what_spark_counted(rows=ROWS)

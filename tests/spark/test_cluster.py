"""Topics on a real Spark cluster: source, sink and lake on executors that can be killed.

The cluster is the one that the page about clusters starts, and one driver does all that Python can
ask of it; the rest of the page runs there too, and then a sync by its command.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.blackbox.conftest import ServerProcess
from tests.docs.pages import fits
from tests.spark.cluster import PATIENCE_S, WORKERS, Cluster
from tests.spark.conftest import CONF, QUICK_JVM
from tests.spark.copying_world import ROWS, SOURCE, Copy, World
from tests.spark.pages import run_console
from tests.spark.proxy import Request

from topics.spark.lake.place import TablePath

_STAGE = re.compile(r"/v0/stages/[^/]+/\d+/(\d+)/\d+(?:\?.*)?")
_CONF = CONF | {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
}

STOPPED = "topics: stopped in the middle; what was written stays, and the next run goes on there"

pytestmark = pytest.mark.timeout(1500)


def is_stage(request: Request) -> bool:
    return _STAGE.fullmatch(request.path) is not None


@dataclass
class Ran:
    """What came of the one run on the cluster."""

    cluster: Cluster
    world: World
    copy: Copy
    held: list[Request]
    executors: list[int]
    jvm: int
    counted: list[list[int]]
    printed: str
    promised: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Both executors hold a stage that the server has and they do not know of; one is killed.

    Each has one core, so the two requests are from different ones.
    """
    work = tmp_path_factory.mktemp("cluster")
    server = ServerProcess(work, {}, ()).start()
    try:
        with Cluster(work, url=server.url) as cluster, World(server, work, "copy") as world:
            yield run_on(cluster, world)
    finally:
        server.end()


def run_on(cluster: Cluster, world: World) -> Ran:
    world.feed()
    (copy,) = world.copies
    said = {block.language: block.code for block in cluster.blocks if block.title is None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICS_URL", world.server.url)
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        run_console(said["console"])
    cluster.wait_for_master()
    stages = copy.proxy.hold(is_stage, answered=True)
    asked = world.asked(partitions=WORKERS)
    with world.driver(asked, master=cluster.master, conf=_CONF, code=said["python"]) as driver:
        held = driver.wait_for_held(stages, WORKERS)
        executors = cluster.executors()
        cluster.kill_executor()
        stages.let_go()
        driver.finish()
        counted = [driver.told("by_url"), driver.told("by_path")]
        return Ran(
            cluster=cluster,
            world=world,
            copy=copy,
            held=held,
            executors=executors,
            jvm=driver.jvm,
            counted=counted,
            printed=driver.told("printed"),
            promised=said["text"],
        )


def test_an_executor_killed_in_the_middle_of_its_stage_costs_and_adds_no_row(ran: Ran) -> None:
    assert len({request.path for request in ran.held}) == WORKERS
    assert len(ran.executors) == WORKERS
    assert ran.jvm not in ran.executors
    staged = [request for request in ran.copy.proxy.seen if is_stage(request)]
    assert len(staged) > WORKERS, "the lost task has staged again, under another name"
    ran.copy.check(in_topics=ROWS, in_table=ROWS)
    assert ran.counted == [[ROWS, ROWS], [ROWS, ROWS]]


def test_the_code_of_the_page_about_clusters_runs_as_printed(ran: Ran) -> None:
    assert fits(ran.printed, ran.promised), f"promised\n{ran.promised}\nand got\n{ran.printed}"


def test_a_sync_by_its_command_runs_on_the_cluster_until_it_is_stopped_and_says_so(
    ran: Ran, tmp_path: Path
) -> None:
    url, place = ran.world.server.url, TablePath.of(str(tmp_path / "orders"))
    conf = _CONF | {"spark.cores.max": "1"}  # one executor starts in less time than two
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command = ["lake", "sync", SOURCE, place.path, "--url", url, "--master", ran.cluster.master]
    with subprocess.Popen(
        [sys.executable, "-m", "topics.cli", *command],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        try:
            epoch = driver.stdout.readline()
            executors = ran.cluster.executors()
            if epoch:
                os.killpg(driver.pid, signal.SIGTERM)  # as `timeout` sends it
            code = driver.wait(PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        said = driver.stderr.read()
    assert epoch.startswith(f"orders  epoch 0  {ROWS} rows"), said + ran.cluster.words
    assert executors, "the work is done there"
    words = [line for line in said.splitlines() if not line.startswith("lake: ")]
    # Whichever is faster, the sync or the end of its JVM.
    assert (code, words) in ((130, [STOPPED]), (0, []))
    rows = DeltaTable(place.path).to_pyarrow_table(columns=["seq"])
    assert sorted(rows.column("seq").to_pylist()) == list(range(1, ROWS + 1))

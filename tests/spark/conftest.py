"""One Spark session for the whole tier, and servers to read from and write to.

    def test_something(spark, shared_server, topic):
        spark.read.format("topics").option("url", shared_server.url).option("subscribe", topic)

Starting Spark takes seconds and every cold Python worker one more, so all tests share `spark`.
Tests that stop or restart a server take `server`, one of their own; those that kill drivers start
processes of their own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.blackbox.conftest import (
    PATIENCE_S,
    ServerFactory,
    ServerProcess,
    server,
    server_factory,
)
from tests.spark.patient import patient_starts
from tests.spark.servers import lasting_port

from topics.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PATIENCE_S", "ServerFactory", "ServerProcess", "server", "server_factory"]

_numbers = itertools.count(1)
QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""One compiler, and Spark's classes taken on trust: that saves a fifth of what a session and its
first query take."""
QUICK_JVM = f"-XX:+UseSerialGC {QUICK_START}"
"""And one thread that collects."""
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}
"""What makes a session for tests start quickly, and wait for a Python that fetches its rows late;
drivers in processes of their own use it too."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; three attempts per task, so that a retried task is a thing that happens."""
    where = tmp_path_factory.mktemp("spark")
    conf = CONF | {
        "spark.sql.warehouse.dir": str(where / "warehouse"),
        "spark.local.dir": str(where / "local"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(lasting_port()),
    }
    with contextlib.chdir(where):  # what queries name by a relative path is made there
        started = session("local[2,3]", conf=conf)
    started.sparkContext.setLogLevel("ERROR")
    with patient_starts():
        yield started
    started.stop()


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> str:
    """Spark Connect, served by the same JVM until it ends."""
    jvm = spark._jvm
    assert jvm is not None
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark.sparkContext._jsc.sc())
    return f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tier, with the default settings; never stop it, use your own `topic`."""
    started = ServerProcess(tmp_path_factory.mktemp("shared"), {}, ()).start()
    yield started
    started.end()


@pytest.fixture
def topic() -> str:
    """The name of a topic that nobody else uses."""
    return f"topic-{next(_numbers)}"

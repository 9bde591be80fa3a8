"""The sink's half of staging against a real server: patience, limits, and errors that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import httpx
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType
from tests.blackbox.conftest import ServerFactory, ServerProcess
from tests.spark.proxy import Proxy

from topics.client.targets import Target
from topics.errors import Forbidden, StaleEpoch, Unauthorized, Unreachable
from topics.spark.bulk.importing import ImportTask, find
from topics.spark.bulk.inputs import ImportPlan
from topics.spark.sink.chunks import RowEncoder, chunks
from topics.spark.sink.stages import StageClient, WriteRefused
from topics.spark.sink.writer import batch_writer

PATIENCE_S = 120.0
_apps = count()
Connect = Callable[..., StageClient]


def body(*datas: str, topic: str = "t") -> bytes:
    rows = pa.RecordBatch.from_pydict({"data": list(datas)})
    (chunk,) = chunks([rows], RowEncoder(0, topic, as_text=False))
    return chunk.body


def head(server: ServerProcess, topic: str) -> int:
    answer = httpx.get(f"{server.url}/v0/topics/{topic}", timeout=60).raise_for_status()
    found: int = answer.json()["head_seq"]
    return found


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(url, app, retry_s=..., token=...)`: stages, closed after the test."""
    with ExitStack() as opened:

        def make(
            url: str, app: str = "app", *, retry_s: float = PATIENCE_S, token: str | None = None
        ) -> StageClient:
            return opened.enter_context(
                StageClient(Target(url=url, token=token), app, retry_s=retry_s)
            )

        yield make


@pytest.fixture
def stages(shared_server: ServerProcess, connect: Connect) -> StageClient:
    return connect(shared_server.url, f"app-{next(_apps)}")


def test_an_epoch_is_open_until_it_is_committed(
    stages: StageClient, shared_server: ServerProcess, topic: str
) -> None:
    assert stages.last_epoch() is None
    assert stages.keep(4, 0, 1, body("1", "2", topic=topic))
    assert stages.keep(4, 1, 1, body("3", topic=topic))
    done = stages.commit(4, [(0, 1), (1, 1)])
    assert (done.deduped, done.topics[topic].last_seq, head(shared_server, topic)) == (False, 3, 3)
    assert stages.commit(4, [(0, 1), (1, 1)]).deduped
    assert not stages.keep(4, 0, 2, body("4", topic=topic))
    assert not stages.is_open(4)
    assert stages.is_open(5)
    assert stages.last_epoch() == 4
    assert head(shared_server, topic) == 3


def test_an_earlier_epoch_is_stale(stages: StageClient) -> None:
    stages.commit(4, [])
    with pytest.raises(StaleEpoch):
        stages.keep(3, 0, 1, body("1"))
    with pytest.raises(WriteRefused, match=r"Another writer .*\[stale_epoch\]"):
        stages.commit(3, [])


def test_a_commit_without_its_stage_says_what_may_have_happened(stages: StageClient) -> None:
    with pytest.raises(WriteRefused, match="TOPICS_STAGE_TTL_MS"):
        stages.commit(0, [(0, 1)])


def test_a_bad_key_is_refused_at_once(server_factory: ServerFactory, connect: Connect) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": "good,limited:rw:mine."})
    with pytest.raises(Unauthorized):
        connect(server.url, token="bad").is_open(0)
    assert connect(server.url, token="good").is_open(0)
    with pytest.raises(Forbidden, match="belongs to another API key"):
        connect(server.url, token="limited").is_open(0)
    task = ImportTask("files", "mine." + "t" * 100, Target(url=server.url, token="limited"))
    app, last = find(task, ImportPlan("files", (), "fingerprint"))
    assert (app[:6], last) == ("mine.t", None)


# Room for stages


def test_want_of_room_is_waited_out_and_then_an_error_that_names_the_setting(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory(env={"TOPICS_MAX_STAGE_BYTES": "100", "TOPICS_MAX_BODY_BYTES": "4000"})
    large = body('"' + "x" * 78 + '"')
    other = connect(server.url, "other", retry_s=0.0)
    assert other.keep(1, 0, 1, large)
    with pytest.raises(WriteRefused, match="TOPICS_MAX_STAGE_BYTES") as caught:
        connect(server.url, "other", retry_s=0.0).keep(1, 5, 1, large)
    assert caught.value.code == "throttled"
    with pytest.raises(WriteRefused, match="TOPICS_MAX_BODY_BYTES"):
        other.keep(1, 1, 1, body('"' + "x" * 8000 + '"'))
    with Proxy(server.address) as proxy, ThreadPoolExecutor() as pool:
        waiting = pool.submit(connect(proxy.url, "other").keep, 1, 5, 1, large)
        turned_away = proxy.hold(lambda request: len(proxy.seen) > 1)
        turned_away.wait()
        other.drop(1, [(0, 1)])
        turned_away.let_go()
        assert waiting.result(PATIENCE_S), "dropping a stage made room"


def test_a_failed_job_leaves_its_rows_nowhere_but_those_of_a_sent_commit(
    shared_server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task has staged, another has failed; and once more with every task done."""
    monkeypatch.setattr(TaskContext, "get", Task)
    schema = StructType([StructField("data", StringType())])
    options = {"url": shared_server.url, "topic": topic}

    def kept(needle: str) -> int:
        files = (shared_server.data_dir / "stages").rglob("*")
        return sum(needle.encode() in path.read_bytes() for path in files if path.is_file())

    for messages_after, left in ((1, 0), (0, 1)):
        needle = f"{topic}-with-{left}-left"
        writer = batch_writer(options, schema, overwrite=False)
        staged = writer.write(iter([pa.RecordBatch.from_pydict({"data": [f'"{needle}"']})]))
        assert kept(needle) == 1
        writer.abort([staged, *[None] * messages_after])
        assert kept(needle) == left


class Task:
    """As much of a TaskContext as a batch write looks at."""

    def partitionId(self) -> int:  # noqa: N802
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802
        return 0


# Servers that come and go


def test_a_server_that_is_away_is_waited_for(
    server_factory: ServerFactory, connect: Connect
) -> None:
    server = server_factory()
    with Proxy(server.address) as proxy, ThreadPoolExecutor() as pool:
        server.kill()
        with pytest.raises(Unreachable, match="retrySeconds"):
            connect(proxy.url, retry_s=0.1).is_open(0)
        tries = len(proxy.seen)
        waiting = pool.submit(connect(proxy.url).is_open, 0)
        missed = proxy.hold(lambda request: len(proxy.seen) > tries + 1)
        missed.wait()
        proxy.target = server.restart().address
        missed.let_go()
        assert waiting.result(PATIENCE_S)

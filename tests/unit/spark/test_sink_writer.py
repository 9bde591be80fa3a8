"""What tasks and drivers say to the server, and what they leave alone, without either."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Self

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from topics.client.targets import Target
from topics.errors import InvalidRequest, StaleEpoch, TopicsError
from topics.spark.errors import InvalidOption, OtherTargets
from topics.spark.sink import writer as sink
from topics.spark.sink.encode import Unencodable
from topics.spark.sink.stages import WriteRefused
from topics.spark.sink.writer import (
    BatchWriter,
    StreamWriter,
    TaskCommit,
    batch_writer,
    stream_writer,
)
from topics.values import CommittedRange, StageCommit

SCHEMA = StructType([StructField("data", StringType())])
OPTIONS = {"url": "http://127.0.0.1:1", "topic": "orders"}
QUERY = "0f2c-query"
Enter = Callable[..., None]


@dataclass
class Server:
    """A server of which only the last epoch of each app and the names of stages are known."""

    last: dict[str, int] = field(default_factory=dict)
    stages: dict[tuple[str, int, int, int], bytes] = field(default_factory=dict)
    commits: list[tuple[str, int, list[tuple[int, int]]]] = field(default_factory=list)
    refusal: TopicsError | None = None
    runs: set[int] = field(default_factory=set)
    touched: Event = field(default_factory=Event)
    topics: dict[str, set[str]] = field(default_factory=dict)
    """Of the last commit of each app."""

    def judge(self, app: str, epoch: int) -> bool:
        last = self.last.get(app, -1)
        if epoch < last:
            raise StaleEpoch(app, epoch=epoch, last_epoch=last)
        return epoch > last


class FakeStages:
    """The client's half, answered from memory."""

    server: Server

    def __init__(self, target: Target, app: str, *, retry_s: float) -> None:
        self.app = app

    def keep(
        self, epoch: int, part: int, attempt: int, rows: bytes, *, by_run: bool = False
    ) -> bool:
        if by_run:
            self.server.runs.add(attempt >> 24)
        if self.server.refusal is not None and self.server.stages:
            raise self.server.refusal
        is_open = self.server.judge(self.app, epoch)
        if is_open:
            self.server.stages[(self.app, epoch, part, attempt)] = rows
        return is_open

    def touch(self, epoch: int, attempt: int) -> None:
        self.server.touched.set()

    def is_open(self, epoch: int) -> bool:
        return self.server.judge(self.app, epoch)

    def drop(self, epoch: int, parts: Iterable[tuple[int, int]]) -> None:
        for part, attempt in parts:
            self.server.stages.pop((self.app, epoch, part, attempt), None)

    def commit(self, epoch: int, parts: Sequence[tuple[int, int]]) -> StageCommit:
        is_new = self.server.judge(self.app, epoch)
        if is_new:
            self.server.last[self.app] = epoch
            self.server.commits.append((self.app, epoch, list(parts)))
            bodies = [self.server.stages[(self.app, epoch, *part)] for part in parts]
            tables = [pa.ipc.open_stream(body).read_all() for body in bodies]
            self.server.topics[self.app] = {
                topic for table in tables for topic in table["topic"].to_pylist()
            }
        written = self.server.topics.get(self.app, set())
        topics = {topic: CommittedRange(1, 1, 1) for topic in written}
        return StageCommit(self.app, epoch, not is_new, topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        """Nothing is open."""


@dataclass
class Task:
    """As much of a TaskContext as the sink looks at."""

    partition: int = 0
    attempt: int = 0
    properties: dict[str, str] = field(default_factory=dict)

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(FakeStages, "server", made, raising=False)
    monkeypatch.setattr(sink, "StageClient", FakeStages)
    return made


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Enter:
    def enter(
        partition: int = 0, attempt: int = 0, batch: int | None = None, run: str | None = None
    ) -> None:
        properties = {} if run is None else {"spark.jobGroup.id": run}
        if batch is not None:
            properties |= {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(batch)}
        task = Task(partition, attempt, properties)
        monkeypatch.setattr(TaskContext, "get", lambda: task)

    return enter


def rows(*datas: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"data": pa.array(datas, pa.string())})])


def many() -> Iterator[pa.RecordBatch]:
    """More than one chunk holds."""
    for _ in range(3):
        yield from rows(*['"' + "x" * 999_998 + '"'] * 10)


def streaming(**options: str) -> StreamWriter:
    made = stream_writer(OPTIONS | options, SCHEMA, overwrite=False)
    assert isinstance(made, StreamWriter)
    return made


def batching(**transaction: str) -> BatchWriter:
    made = batch_writer(OPTIONS | transaction, SCHEMA, overwrite=False)
    assert isinstance(made, BatchWriter)
    return made


# Streams


def test_a_task_stages_each_chunk_as_a_part_of_its_own(server: Server, in_task: Enter) -> None:
    in_task(partition=2, attempt=7, batch=5)
    staged = streaming().write(many())
    assert (staged.app, staged.epoch, staged.rows) == (QUERY, 5, 30)
    assert [part for part, _ in staged.parts] == [2 * 2**32, 2 * 2**32 + 1]
    assert [(QUERY, 5, *part) for part in staged.parts] == list(server.stages)
    assert {attempt & 0xFFFFFF for _, attempt in staged.parts} == {7}, "readable in a listing"


def test_the_same_attempt_of_another_driver_has_another_name(
    server: Server, in_task: Enter
) -> None:
    in_task(batch=0)
    first, second = streaming().write(rows("1")), streaming().write(rows("1"))
    assert first.parts != second.parts
    assert len(server.stages) == 2


def test_the_attempts_of_a_run_name_it(server: Server, in_task: Enter) -> None:
    for batch in (0, 1):
        in_task(partition=batch, attempt=batch, batch=batch, run="first")
        streaming().write(rows("1"))
    assert len(server.runs) == 1
    in_task(batch=1, run="second")
    streaming().write(rows("1"))
    assert len(server.runs) == 2
    writer = batching()
    for attempt in (1, 2):
        in_task(attempt=attempt)
        writer.write(rows("1"))
    assert len(server.runs) == 3


def test_a_task_that_waits_for_its_rows_tells_that_it_is_alive(
    server: Server, in_task: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows("1")
        assert server.touched.wait(60)

    monkeypatch.setattr(sink, "PULSE_S", 0.001)
    in_task(batch=0, run="first")
    assert streaming().write(slow()).rows == 1


def test_the_driver_commits_every_part_of_every_task_once(server: Server, in_task: Enter) -> None:
    messages: list[Any] = []
    for partition in range(2):
        in_task(partition=partition, batch=3)
        messages.append(streaming().write(rows("1")))
    in_task(partition=2, batch=3)
    messages.append(streaming().write(rows()))
    streaming().commit(messages, 3)
    streaming().commit(messages, 3)
    assert server.commits == [(QUERY, 3, [part for one in messages for part in one.parts])]


def test_an_epoch_that_is_committed_is_not_sent_again(server: Server, in_task: Enter) -> None:
    server.last[QUERY], server.topics[QUERY] = 3, {"orders"}
    in_task(batch=3)
    staged = streaming().write(many())
    assert len(staged.parts) == 1, "the first answer says it all"
    streaming().commit([staged], 3)
    assert not server.commits


def test_a_stream_without_numbered_batches_is_refused(server: Server, in_task: Enter) -> None:
    in_task()
    with pytest.raises(InvalidOption, match="micro-batch trigger"):
        streaming().write(rows("1"))


# Batches


def test_a_batch_without_a_transaction_is_an_app_of_its_own(server: Server, in_task: Enter) -> None:
    in_task()
    for _ in range(2):
        writer = batching()
        staged = writer.write(rows("1"))
        pickle.loads(pickle.dumps(writer)).commit([staged])
    (one, _, _), (other, _, _) = server.commits
    assert one != other


def test_the_names_of_apps_begin_with_the_prefix_of_the_key(server: Server, in_task: Enter) -> None:
    in_task(batch=5)
    assert streaming(appprefix="mine.").write(rows("1")).app == f"mine.{QUERY}"
    assert batching(appprefix="mine.").write(rows("1")).app.startswith("mine.batch-")
    own = batching(appprefix="mine.", txnappid="nightly", txnversion="4")
    assert own.write(rows("1")).app == "nightly"


def test_a_transaction_is_written_once(server: Server, in_task: Enter) -> None:
    in_task()
    for _ in range(2):
        writer = batching(txnappid="nightly", txnversion="4")
        writer.commit([writer.write(rows("1"))])
    assert [(app, epoch) for app, epoch, _ in server.commits] == [("nightly", 4)]
    assert len(server.stages) == 1, "the second run did not even stage"


def routed(*topics: str | None) -> Iterator[pa.RecordBatch]:
    """Rows that name their topic, each in a batch of its own."""
    for topic in topics:
        columns = {"topic": pa.array([topic], pa.string()), "data": pa.array(["1"])}
        yield pa.RecordBatch.from_pydict(columns)


def test_a_transaction_that_wrote_elsewhere_is_refused_with_both_targets(
    server: Server, in_task: Enter
) -> None:
    in_task()
    nightly = {"txnappid": "nightly", "txnversion": "4"}
    first = batching(**nightly)
    first.commit([first.write(rows("1"))])
    audit = batching(topic="audit", **nightly)
    with pytest.raises(OtherTargets, match="has written to orders, and this write goes to audit"):
        audit.commit([audit.write(rows("1"))])
    again = batching(**nightly)
    again.commit([again.write(rows("1"))])
    mixed = batching(**nightly)
    with pytest.raises(OtherTargets, match="this write goes to a, orders"):
        mixed.commit([mixed.write(routed(None, "a", None)), mixed.write(routed())])
    empty = batching(topic="audit", **nightly)
    empty.commit([empty.write(rows())])
    assert len(server.commits) == 1


def test_a_copied_checkpoint_with_another_topic_is_refused_with_both_topics(
    server: Server, in_task: Enter
) -> None:
    in_task(batch=3)
    streaming().commit([streaming().write(many())], 3)
    copied = streaming(topic="audit")
    with pytest.raises(OtherTargets, match=r"written to orders, .* goes to audit.*appPrefix"):
        copied.commit([copied.write(many())], 3)
    prefixed = streaming(topic="audit", appprefix="audit.")
    prefixed.commit([prefixed.write(rows("1"))], 3)
    assert [app for app, *_ in server.commits] == [QUERY, f"audit.{QUERY}"]


def test_every_topic_of_a_repeated_batch_is_known_though_few_rows_are_sent(
    server: Server, in_task: Enter
) -> None:
    server.last[QUERY], server.topics[QUERY] = 3, {"a"}
    in_task(batch=3)
    staged = streaming().write(routed("a", "a", "b"))
    assert staged.topics == ("a", "b")
    with pytest.raises(OtherTargets, match="goes to a, b"):
        streaming().commit([staged], 3)


def test_a_lower_version_is_refused_before_any_work(server: Server) -> None:
    server.last["nightly"] = 4
    with pytest.raises(WriteRefused, match=r"txnVersion 3 .*'nightly'.*\[stale_epoch\]") as caught:
        batching(txnappid="nightly", txnversion="3")
    assert caught.value.code == "stale_epoch"


def test_overwriting_is_refused_with_a_reason() -> None:
    with pytest.raises(InvalidOption, match=r"only ever appended to: write with mode\('append'\)"):
        batch_writer(OPTIONS, SCHEMA, overwrite=True)
    with pytest.raises(InvalidOption, match="output mode complete"):
        stream_writer(OPTIONS, SCHEMA, overwrite=True)


# Failures


def test_a_task_that_fails_drops_what_it_has_staged(server: Server, in_task: Enter) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from many()
        yield from rows("{not json")

    in_task(partition=1, batch=0)
    with pytest.raises(Unencodable, match="partition 1, row 30"):
        streaming().write(broken())
    assert not server.stages


def test_a_refusal_names_partition_and_rows(server: Server, in_task: Enter) -> None:
    server.refusal = InvalidRequest("the tag of record 3 has 300 bytes, at most 256 are allowed")
    in_task(partition=1, batch=0)
    with pytest.raises(WriteRefused, match=r"partition 1, rows 1\d to 29 .*of record 3") as caught:
        streaming().write(many())
    assert caught.value.code == "invalid_request"
    assert not server.stages


def test_abort_drops_the_stages_of_this_job_only(server: Server, in_task: Enter) -> None:
    in_task(batch=2)
    mine = streaming().write(rows("1"))
    others = streaming().write(rows("1"))
    streaming().abort([mine, None], 2)
    assert list(server.stages) == [(QUERY, 2, *others.parts[0])]


def test_abort_touches_nothing_that_a_commit_may_have_named(server: Server, in_task: Enter) -> None:
    in_task(batch=2)
    messages: list[Any] = [streaming().write(rows("1")), streaming().write(rows("2"))]
    streaming().abort(messages, 2)
    assert len(server.stages) == 2, "with every message there, a commit may be on its way"


def test_messages_and_writers_travel(server: Server) -> None:
    staged = TaskCommit("a", 1, ((1, 2),), 3)
    assert pickle.loads(pickle.dumps(staged)) == staged
    assert pickle.loads(pickle.dumps(streaming())) is not None

"""A source against a real server, without Spark: parity, restarts, refusals, positions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess
from tests.blackbox.test_serve_tls import make_certificate
from tests.spark.servers import Server, start
from tests.unit.spark.source_rows import account, batch, batch_rows, rows, stream

from topics.client.targets import Target
from topics.errors import TopicNotFound, Unauthorized, Unreachable, Untrusted
from topics.spark.errors import InvalidOption
from topics.spark.sink import options as sink_options
from topics.spark.sink.chunks import RowEncoder, chunks
from topics.spark.sink.stages import StageClient
from topics.spark.source import directory
from topics.spark.source.log import Offset
from topics.spark.source.server import ServerLog

PATIENT = {"retrySeconds": "300"}


@pytest.fixture
def shared(shared_server: ServerProcess) -> Iterator[Server]:
    server = Server(shared_server)
    yield server
    server.close()
    directory._shared.clear()


@pytest.fixture
def own(server_factory: ServerFactory) -> Iterator[Server]:
    server = start(server_factory)
    yield server
    server.close()


def test_a_server_and_its_directory_give_the_same_rows(shared: Server, topic: str) -> None:
    for _ in range(3):
        shared.append(topic, 1000)
    shared.delete(topic, match="c:2")
    shared.create(topic, cap_records=1500)
    options = {"subscribe": topic, "includeDeleted": "true", "minPartitions": "3"}
    by_url = batch_rows(options | {"url": shared.url})
    by_path = batch_rows(options | {"path": shared.process.data_dir})
    assert by_url == by_path
    audit = shared.audit(topic)
    assert account(by_url, first=1, last=3000) == Counter(
        data=audit["live"], deleted=audit["deleted"], lost=audit["lost_cap"]
    )


def test_filters_are_applied_by_the_server(shared: Server, topic: str) -> None:
    shared.append(topic, 100)
    options = {"url": shared.url, "subscribe": topic}
    assert len(batch_rows(options | {"match": "c:1"})) == 20
    assert len(batch_rows(options | {"match": "c:*"})) == 100
    assert batch_rows(options | {"match": "none & other?"}) == []


def test_a_start_by_time_asks_the_server_for_the_seq(shared: Server, topic: str) -> None:
    shared.append(topic, 10)
    body = {"from_seq": 9, "limit": 1}
    written = shared.call("POST", f"/v0/topics/{topic}/diff", body)["records"][0]["$ts"]
    options = {"url": shared.url, "subscribe": topic}
    assert len(batch_rows(options | {"startingTimestamp": written})) == 10
    assert batch_rows(options | {"startingTimestamp": written + 60_000}) == []
    assert batch_rows(options | {"endingTimestamp": written}) == []


def test_a_server_killed_between_pages_costs_a_wait_and_nothing_else(own: Server) -> None:
    for _ in range(5):
        own.append("orders", 1000)
    reader = batch({"url": own.url, "subscribe": "orders", "batchRows": "100"} | PATIENT)
    (piece,) = reader.partitions()
    found = reader.read(piece)
    first = next(found).to_pylist()
    own.process.kill()
    back = threading.Timer(0.5, own.restart)
    back.start()
    rest = [row for some in found for row in some.to_pylist()]
    back.join()
    assert account(first + rest, first=1, last=5000) == Counter(data=5000)


def test_a_stream_waits_for_a_server_that_restarts(own: Server) -> None:
    own.append("orders", 10)
    reader = stream({"url": own.url, "subscribe": "orders"} | PATIENT)
    offset = reader.initialOffset()
    own.process.kill()
    back = threading.Timer(0.5, own.restart)
    back.start()
    again = reader.latestOffset(offset, reader.getDefaultReadLimit())
    back.join()
    # Seqs that the dead server had reserved are skipped: that is progress, but no row.
    assert rows(reader, reader.partitions(offset, again)) == []
    reader.stop()


def test_a_server_that_stays_away_is_a_clear_error(own: Server) -> None:
    own.append("orders", 10)
    options = {"url": own.url, "subscribe": "orders", "retrySeconds": "0.2"}
    reader = batch(options)
    planned = reader.partitions()
    own.process.kill()
    with pytest.raises(Unreachable, match=r"no answer from http.*tried for 0\.2 s") as at_start:
        batch(options).partitions()
    assert own.url in str(at_start.value)
    with pytest.raises(Unreachable, match=r"retrySeconds sets how long"):
        rows(reader, planned)


def test_a_wrong_key_is_refused_at_once(server_factory: ServerFactory) -> None:
    keyed = Server(server_factory(env={"TOPICS_API_KEYS": "secret,half:read:eu."}), "secret")
    keyed.append("orders", 3)
    options = {"url": keyed.url, "subscribe": "orders"} | PATIENT
    with pytest.raises(Unauthorized):
        batch(options | {"token": "wrong"}).partitions()
    assert len(batch_rows(options | {"token": "secret"})) == 3
    keyed.close()


def test_a_missing_topic_is_named(shared: Server) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"):
        batch({"url": shared.url, "subscribe": "nowhere"}).partitions()


def test_source_and_sink_trust_the_authority_that_ca_file_names(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    make_certificate(tmp_path, serial=1)
    trusted = str(tmp_path / "cert.pem")
    env = {"TOPICS_TLS_CERT": trusted, "TOPICS_TLS_KEY": str(tmp_path / "key.pem")}
    server = {"url": server_factory(env=env).url}
    sink = sink_options.parse({**server, "caFile": trusted}, streaming=True)
    with StageClient(sink.target, "app", retry_s=60.0) as stages:
        row = pa.record_batch({"topic": ["orders"], "data": ["1"]})
        (chunk,) = chunks([row], RowEncoder(0, None, as_text=False))
        stages.keep(0, 0, 1, chunk.body)
        stages.commit(0, [(0, 1)])
    options = {**server, "subscribe": "orders", "caFile": trusted}
    assert [found["data"] for found in batch_rows(options)] == ["1"]
    with pytest.raises(Untrusted, match=r"(?i)certificate"):  # an hour of tries is not begun
        batch({**server, "subscribe": "orders", "retrySeconds": "3600"}).partitions()
    with pytest.raises(InvalidOption, match="ca_file must be a PEM file"):
        batch(options | {"caFile": str(tmp_path / "none")})


def test_a_wait_ends_with_the_next_record(shared: Server, topic: str) -> None:
    shared.append(topic, 3)
    log = ServerLog(Target(url=shared.url), retry_s=0)
    head = log.head(topic)
    assert head is not None
    writing = threading.Timer(0.2, lambda: shared.append(topic, 1))
    writing.start()
    log.wait(topic, head, 30.0)
    writing.join()
    assert log.head(topic) == Offset(head.epoch, 5)
    log.close()


def test_retention_and_deletes_under_a_scan_are_accounted_for(shared: Server, topic: str) -> None:
    for _ in range(6):
        shared.append(topic, 1000)
    options = {"url": shared.url, "subscribe": topic, "includeDeleted": "true"}
    reader = batch(options | {"batchRows": "100", "maxRecordsPerPartition": "2000"})
    found: list[dict[str, Any]] = []
    for number, piece in enumerate(reader.partitions()):
        for some in reader.read(piece):
            found += some.to_pylist()
            shared.delete(topic, match=f"c:{number}")
            shared.create(topic, cap_records=max(100, 4000 - len(found)))
    kinds = account(found, first=1, last=6000)
    assert kinds["data"] > 0
    assert kinds["deleted"] > 0
    assert kinds["lost"] > 0


def test_a_committed_position_shows_as_lag_in_api_and_metrics(shared: Server, topic: str) -> None:
    shared.append(topic, 10)
    options = {"url": shared.url, "subscribe": topic, "cursor": "etl"}
    reader = stream(options | {"startingOffsets": "earliest"})
    epoch = shared.audit(topic)["epoch"]
    reader.commit({topic: [epoch, 8]})
    cursor = shared.call("GET", f"/v0/topics/{topic}/cursors/etl")
    assert (cursor["seq"], cursor["lag_records"]) == (7, 3)
    assert cursor["lag_seconds"] > 0
    metrics = shared.http.request("GET", "/v0/metrics").body.decode()
    labels = f'{{topic="{topic}",cursor="etl"}}'
    assert f"topics_cursor_lag_records{labels} 3" in metrics
    assert f"topics_cursor_lag_seconds{labels}" in metrics
    reader.latestOffset({topic: [epoch, 11]}, reader.getDefaultReadLimit())
    cursor = shared.call("GET", f"/v0/topics/{topic}/cursors/etl")
    assert (cursor["seq"], cursor["lag_records"]) == (10, 0), "asked for more: the last is done"
    reader.stop()


def test_a_position_that_cannot_be_reported_does_not_end_the_query(
    own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    own.append("orders", 10)
    options = {"url": own.url, "subscribe": "orders", "cursor": "etl", "retrySeconds": "0"}
    reader = stream(options)
    own.process.kill()
    reader.commit({"orders": [1, 5]})
    assert "cursor etl of orders is not up to date" in caplog.text
    reader.stop()

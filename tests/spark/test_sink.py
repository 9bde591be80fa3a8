"""Data frames into topics on a real Spark: what is stored, what is refused, what is repeated."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.blackbox.conftest import ServerFactory, ServerProcess
from tests.spark.proxy import Held, Proxy, Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGE = re.compile(r"/v0/stages/[^/]+/\d+/(\d+)/(\d+)(?:\?.*)?")


def write(rows: DataFrame, url: str, *, mode: str = "append", **options: Any) -> None:  # noqa: ANN401
    rows.write.format("topics").option("url", url).options(**_texts(options)).mode(mode).save()


def _texts(options: dict[str, object]) -> dict[str, Any]:
    return {name: str(value) for name, value in options.items()}


def records(server: ServerProcess, topic: str) -> list[dict[str, Any]]:
    url = f"{server.url}/v0/topics/{topic}/diff"
    found: list[dict[str, Any]] = []
    cursor = 0
    while True:
        asked = {"from_seq": cursor, "limit": 1000, "include_tags": True}
        page = httpx.post(url, json=asked, timeout=60).raise_for_status().json()
        found += page["records"]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def status_of(server: ServerProcess, topic: str) -> int:
    return httpx.get(f"{server.url}/v0/topics/{topic}", timeout=60).status_code


def datas(server: ServerProcess, topic: str) -> list[Any]:
    return [record["data"] for record in records(server, topic)]


def refusal(doing: Callable[[], object]) -> str:
    """What Spark says when it fails."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark's many kinds; words are judged
        doing()
    return str(caught.value)


# What is stored


def test_columns_of_every_type_become_records(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    rows = spark.sql(
        f"""SELECT named_struct(
                'id', id, 'none', CAST(NULL AS string), 'price', CAST(1.10 AS decimal(9, 2)),
                'at', timestamp_seconds(id), 'local', TIMESTAMP_NTZ '2026-01-02 03:04:05',
                'day', DATE '2026-01-02', 'list', array(1.5D, NULL), 'map', map('k', id),
                'text', 'a "b" ä') AS data,
            IF(id = 0, 'first', NULL) AS tag, concat('n', id) AS node,
            IF(id = 1, map('m', id), NULL) AS meta, IF(id = 2, '{topic}.else', NULL) AS topic
            FROM range(0, 3, 1, 1)"""
    )
    write(rows, shared_server.url, topic=topic)
    first, second = records(shared_server, topic)
    assert first["data"] == {
        "id": 0,
        "none": None,
        "price": 1.1,
        "at": "1970-01-01T00:00:00.000000Z",
        "local": "2026-01-02T03:04:05.000000",
        "day": "2026-01-02",
        "list": [1.5, None],
        "map": {"k": 0},
        "text": 'a "b" ä',
    }
    assert list(first["data"]) == rows.schema["data"].dataType.names  # type: ignore[attr-defined]
    assert (first["$tag"], first["$node"], "meta" in first) == ("first", "n0", False)
    assert (second.get("$tag"), second["$node"], second["meta"]) == (None, "n1", {"m": 1})
    assert [data["id"] for data in datas(shared_server, f"{topic}.else")] == [2]


def test_strings_are_json_or_text(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    rows = spark.sql(
        """SELECT * FROM VALUES ('{"a": 1}'), (NULL), ('[1,2]') AS t(data)"""
    ).coalesce(1)
    write(rows, shared_server.url, topic=topic)
    write(rows, shared_server.url, topic=f"{topic}.text", dataFormat="text")
    assert datas(shared_server, topic) == [{"a": 1}, None, [1, 2]]
    assert datas(shared_server, f"{topic}.text") == ['{"a": 1}', None, "[1,2]"]


def test_records_are_in_the_order_of_partitions_and_rows_through_many_chunks(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    """The first partition has 18 MB, which is two chunks, the second next to nothing."""
    rows = spark.range(0, 36, 1, 2).selectExpr(
        "named_struct('id', id, 'x', repeat('x', IF(id < 18, 999900, 1))) AS data"
    )
    with Proxy(shared_server.address) as proxy:
        write(rows, proxy.url, topic=topic)
        stages = [_STAGE.fullmatch(request.path) for request in proxy.seen]
        parts = sorted(int(stage[1]) for stage in stages if stage)
        sizes = [len(r.body) for r in proxy.seen if _STAGE.fullmatch(r.path)]
    assert parts == [0, 1, 1 << 32]
    assert max(sizes) <= 16 << 20
    assert [data["id"] for data in datas(shared_server, topic)] == list(range(36))


# Once


def test_a_transaction_is_skipped_when_repeated_and_refused_when_stale(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    rows = spark.range(10).selectExpr("id AS data")
    nightly = {"topic": topic, "txnAppId": f"nightly-{topic}"}
    write(rows, shared_server.url, txnVersion=7, **nightly)
    write(rows, shared_server.url, txnVersion=7, **nightly)
    assert sorted(datas(shared_server, topic)) == list(range(10))
    assert "stale_epoch" in refusal(lambda: write(rows, shared_server.url, txnVersion=6, **nightly))
    write(rows, shared_server.url, txnVersion=8, **nightly)
    assert len(datas(shared_server, topic)) == 20
    elsewhere = nightly | {"topic": f"{topic}.else", "txnVersion": "8"}
    said = refusal(lambda: write(rows, shared_server.url, **elsewhere))
    assert f"has written to {topic}, and this write goes to {topic}.else" in said


def test_an_epoch_that_is_committed_meanwhile_is_given_up_however_large(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    """Another driver of the same job wins while this one stages: most of its rows stay unread."""
    rows = spark.range(0, 18, 1, 1).selectExpr("struct(repeat('x', 999900)) AS data")
    nightly = {"topic": topic, "txnAppId": f"nightly-{topic}", "txnVersion": "1"}

    def win(stages: Held) -> None:
        stages.wait()
        url = f"{shared_server.url}/v0/stages/nightly-{topic}/1"
        row = {"records": [{"topic": topic, "data": "winner"}]}
        httpx.post(f"{url}/7/7", json=row, timeout=60).raise_for_status()
        httpx.post(f"{url}/commit", json={"parts": [[7, 7]]}, timeout=60).raise_for_status()
        stages.let_go()

    with Proxy(shared_server.address) as proxy:
        stages = proxy.hold(is_stage)
        threading.Thread(target=win, args=[stages], daemon=True).start()
        write(rows, proxy.url, **nightly)
        write(rows, proxy.url, **nightly)
        assert len([request for request in proxy.seen if is_stage(request)]) == 1
    assert datas(shared_server, topic) == ["winner"]


def test_a_task_that_fails_after_staging_is_repeated_without_a_trace(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    with Proxy(shared_server.address) as proxy:
        staged = proxy.hold(is_stage, answered=True)
        threading.Thread(target=refuse, args=[staged], daemon=True).start()
        write(spark.range(0, 500, 1, 2).selectExpr("id AS data"), proxy.url, topic=topic)
        attempts = {request.path for request in proxy.seen if is_stage(request)}
    assert len(attempts) > 2, "one of the two tasks at least was tried again, under another name"
    assert sorted(datas(shared_server, topic)) == list(range(500))


def is_stage(request: Request) -> bool:
    return _STAGE.fullmatch(request.path) is not None and len(request.body) > 100


def cut_off(held: Held) -> None:
    held.wait()
    held.cut_off()


def refuse(held: Held) -> None:
    held.wait()
    error = {"error": {"code": "invalid_request", "message": "the test says no"}}
    held.reply(400, json.dumps(error).encode())


def test_a_commit_whose_answer_is_lost_is_asked_about_again(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    with Proxy(shared_server.address) as proxy:
        commit = proxy.hold(lambda request: request.path.endswith("/commit"), answered=True)
        threading.Thread(target=cut_off, args=[commit], daemon=True).start()
        write(spark.range(100).selectExpr("id AS data"), proxy.url, topic=topic)
        commits = [request for request in proxy.seen if request.path.endswith("/commit")]
    assert len(commits) == 2
    assert sorted(datas(shared_server, topic)) == list(range(100))


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, shared_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    for start in (0, 1000):
        write(
            spark.range(start, start + 1000).selectExpr("id AS data"),
            shared_server.url,
            topic=topic,
        )
        source = spark.readStream.format("topics").option("url", shared_server.url)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = (
            source.option("maxRecordsPerTrigger", 400)
            .load()
            .selectExpr("data", "kind")
            .where("kind = 'data'")
        )
        sink = rows.select("data").writeStream.format("topics").option("url", shared_server.url)
        sink = sink.option("topic", f"{topic}.copy").option(
            "checkpointLocation", str(tmp_path / "c")
        )
        sink.trigger(availableNow=True).start().awaitTermination()
        assert sorted(datas(shared_server, f"{topic}.copy")) == list(range(start + 1000))


# What is refused


def test_a_row_that_is_no_json_fails_with_its_place_and_a_remedy(
    spark: SparkSession, shared_server: ServerProcess, topic: str
) -> None:
    rows = spark.range(0, 10, 1, 2).selectExpr("IF(id = 7, '{nope', '1') AS data")
    said = refusal(lambda: write(rows, shared_server.url, topic=topic))
    assert "partition 1, row 2 (counted from 0), column data: the JSON is malformed" in said
    assert "dataFormat" in said
    huge = spark.sql("SELECT repeat('x', 300) AS tag, 1 AS data")
    said = refusal(lambda: write(huge, shared_server.url, topic=topic))
    assert "partition 0, rows 0 to 0 could not be staged: the tag of record 0 has 300 bytes" in said
    assert status_of(shared_server, topic) == 404


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("1 AS data", {"topics": "t"}, "did you mean topic?"),
        ("1 AS data, 2 AS tag", {"topic": "t"}, "tag is a string, not int"),
        ("parse_json('1') AS data", {"topic": "t"}, "to_json"),
        ("1 AS data", {"topic": "t", "mode": "overwrite"}, "only ever appended to"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_task_runs(
    spark: SparkSession,
    shared_server: ServerProcess,
    columns: str,
    options: dict[str, str],
    words: str,
) -> None:
    rows = spark.sql(f"SELECT {columns}")
    assert words in refusal(lambda: write(rows, shared_server.url, **options))


def test_a_stream_that_replaces_its_result_is_refused_with_advice_that_works(
    spark: SparkSession, shared_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    counts = spark.readStream.format("rate").load().groupBy().count().selectExpr("count AS data")
    sink = counts.writeStream.format("topics").option("url", shared_server.url).option("topic", "t")
    sink = sink.outputMode("complete").option("checkpointLocation", str(tmp_path))
    said = refusal(lambda: sink.start().awaitTermination())
    assert "output mode complete" in said
    assert "foreachBatch" in said
    written = []

    def write_whole(rows: DataFrame, number: int) -> None:
        app = f"whole-{topic}"
        write(rows, shared_server.url, topic=topic, txnAppId=app, txnVersion=number)
        written.append(number)

    whole = counts.writeStream.outputMode("complete").foreachBatch(write_whole)
    whole = whole.option("checkpointLocation", str(tmp_path / "whole"))
    query = whole.trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(datas(shared_server, topic)) == len(written) > 0, "the advice is one that works"


def test_a_bad_key_and_an_absent_server_are_said_plainly(
    spark: SparkSession, server_factory: ServerFactory
) -> None:
    server = server_factory(env={"TOPICS_API_KEYS": "good"})
    rows = spark.sql("SELECT 1 AS data")
    said = refusal(lambda: write(rows, server.url, topic="t", token="bad"))
    assert "the server does not know this API key" in said
    write(rows, server.url, topic="t", token="good")
    server.kill()
    nightly = {"topic": "t", "token": "good", "txnAppId": "nightly", "txnVersion": "1"}
    said = refusal(lambda: write(rows, server.url, retrySeconds=0.1, **nightly))
    assert f"no answer from {server.url}" in said
    assert "Check that the server runs" in said

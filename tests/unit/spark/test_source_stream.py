"""Streams over a directory: offsets, limits, and topics that come, go and come back."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.unit.spark.source_rows import Row, account, rows, stream

import topics
from topics.embedded import Log
from topics.errors import TopicNotFound
from topics.spark.errors import InvalidOption, RecordsLost
from topics.spark.source import directory
from topics.spark.source import reader as source
from topics.spark.source.reader import TopicsStreamReader

ALL = ReadAllAvailable()
FUTURE = 4_000_000_000_000
"""A time that no record has: a stream from then on begins at the head."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with topics.open(tmp_path / "data", segment_max_events=50) as opened:
        yield opened
    directory._shared.clear()


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(source, "LONG_POLL_S", 0.0)
    return {"path": tmp_path / "data", "subscribe": "orders", "startingOffsets": "earliest"}


def append(log: Log, count: int, *, topic: str = "orders") -> None:
    log.append(topic, [{"data": "x" * 100, "tag": f"c:{n % 5}"} for n in range(count)])


def without_start(where: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in where.items() if name != "startingOffsets"}


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def trigger(reader: TopicsStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[Row]]:
    """One micro-batch: how far it goes, and its rows."""
    end = stored(reader.latestOffset(start, reader.getDefaultReadLimit()))
    return end, rows(reader, reader.partitions(start, end))


def drain(reader: TopicsStreamReader) -> list[list[Row]]:
    """Micro-batches until nothing is left."""
    start = stored(reader.initialOffset())
    batches: list[list[Row]] = []
    while True:
        end, found = trigger(reader, start)
        if end == start:
            return batches
        batches.append(found)
        start = end


# Offsets


def test_an_offset_is_epoch_and_next_seq_of_each_topic_in_order(
    log: Log, where: dict[str, object]
) -> None:
    for topic in ("zebra", "apple", "mango"):
        append(log, 3, topic=topic)
    reader = stream(where | {"subscribe": "zebra,mango,apple"})
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert list(end) == ["apple", "mango", "zebra"]
    assert end["zebra"] == [log.state("zebra").epoch, 4]
    assert json.dumps(reader.latestOffset(stored(end), ALL)) == json.dumps(end)
    assert reader.reportLatestOffset() == end


def test_a_stream_begins_at_the_head_unless_told_otherwise(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 10)
    epoch = log.state("orders").epoch
    without = without_start(where)
    assert stream(without).initialOffset() == {"orders": [epoch, 11]}
    assert stream(where).initialOffset() == {"orders": [epoch, 1]}
    given = where | {"startingOffsets": '{"orders": 7}'}
    assert stream(given).initialOffset() == {"orders": [epoch, 7]}
    ago = without | {"startingTimestamp": "-1 hour"}
    assert stream(ago).initialOffset() == {"orders": [epoch, 1]}


def test_new_records_are_seen_and_nothing_twice(log: Log, where: dict[str, object]) -> None:
    append(log, 10)
    reader = stream(where)
    first, found = trigger(reader, stored(reader.initialOffset()))
    assert [row["seq"] for row in found] == list(range(1, 11))
    assert trigger(reader, first) == (first, [])
    append(log, 5)
    _, more = trigger(reader, first)
    assert [row["seq"] for row in more] == list(range(11, 16))


def test_a_batch_that_is_planned_again_is_the_same(log: Log, where: dict[str, object]) -> None:
    append(log, 30)
    reader = stream(where | {"maxRecordsPerTrigger": "10"})
    start = stored(reader.initialOffset())
    end, found = trigger(reader, start)
    append(log, 30)
    again = stream(where)  # a restarted driver
    assert rows(again, again.partitions(start, end)) == found


def test_a_missing_topic_is_an_error_when_a_query_begins(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 1, topic="others")
    with pytest.raises(TopicNotFound, match="orders"):
        stream(where).initialOffset()


def test_a_checkpoint_of_another_topic_is_refused(log: Log, where: dict[str, object]) -> None:
    append(log, 3)
    with pytest.raises(InvalidOption, match=r"query over payments, and this one reads orders"):
        stream(where).latestOffset({"payments": [1, 5]}, ALL)


def test_a_checkpoint_of_another_source_is_refused(log: Log, where: dict[str, object]) -> None:
    append(log, 3)
    with pytest.raises(InvalidOption, match="no position in topics"):
        stream(where).latestOffset({"orders": {"0": 17}}, ALL)


def test_a_checkpoint_wins_over_the_start_that_was_asked_for(
    log: Log, where: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 10)
    epoch = log.state("orders").epoch
    with caplog.at_level(logging.WARNING, "topics.spark"):
        _, found = trigger(stream(where), {"orders": [epoch, 8]})
    assert [row["seq"] for row in found] == [8, 9, 10]
    assert "goes on from its checkpoint" in caplog.text


@pytest.mark.parametrize("moving", [{}, {"startingTimestamp": FUTURE}])
@pytest.mark.parametrize("ends", [False, True], ids=["endless", "available now"])
def test_a_start_is_looked_up_once_however_often_spark_asks(
    log: Log, where: dict[str, object], moving: dict[str, object], ends: bool
) -> None:
    append(log, 5)
    reader = stream(without_start(where) | moving)
    if ends:
        reader.prepareForTriggerAvailableNow()  # Spark asks for the end before the beginning,
    append(log, 3)
    start = stored(reader.initialOffset())
    first, found = trigger(reader, start)
    assert (first["orders"][1], found) == (9, [])
    append(log, 2)
    assert reader.initialOffset() == start  # and for the beginning again when the batch runs
    end, found = trigger(reader, first)
    assert [row["seq"] for row in found] == ([] if ends else [9, 10])
    assert (end == first) is ends


@pytest.mark.parametrize(
    "moving",
    [{}, {"startingTimestamp": FUTURE}, {"startingOffsets": "earliest", "onLoss": "fail"}],
    ids=["latest", "time", "earliest that may not lose"],
)
def test_a_query_that_dies_in_its_first_batch_still_begins_where_it_began(
    log: Log, where: dict[str, object], moving: dict[str, object]
) -> None:
    append(log, 5)
    log.configure("orders", cap_records=5)
    options = without_start(where) | moving
    reader = stream(options)
    first, _ = trigger(reader, stored(reader.initialOffset()))
    append(log, 3)
    again = stream(options)  # a restarted driver; batch 0 is repeated, up to where it went
    start = stored(again.initialOffset())
    assert start != first
    assert again.partitions(start, first) == []
    if "onLoss" in moving:
        with pytest.raises(RecordsLost, match="from seq 1 to 3"):
            trigger(again, first)
    else:
        _, found = trigger(again, first)
        assert [row["seq"] for row in found] == [6, 7, 8]


def test_a_start_that_stays_needs_no_batch_of_its_own(log: Log, where: dict[str, object]) -> None:
    append(log, 5)
    for given in ("earliest", '{"orders": 1}'):
        reader = stream(where | {"startingOffsets": given})
        assert len(trigger(reader, stored(reader.initialOffset()))[1]) == 5


# Limits


def test_rows_of_a_trigger_are_limited_exactly(log: Log, where: dict[str, object]) -> None:
    append(log, 95)
    log.delete("orders", match="c:2")
    reader = stream(where | {"maxRecordsPerTrigger": "20"})
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    batches = drain(reader)
    assert [len(found) for found in batches] == [20, 20, 20, 16]
    assert [row["seq"] for found in batches for row in found] == [
        seq for seq in range(1, 96) if seq % 5 != 3
    ]


def test_a_lost_run_counts_as_one_row(log: Log, where: dict[str, object]) -> None:
    append(log, 100)
    log.configure("orders", cap_records=30)
    batches = drain(stream(where | {"maxRecordsPerTrigger": "10"}))
    assert [len(found) for found in batches] == [10, 10, 10, 1]
    whole = [row for found in batches for row in found]
    assert account(whole, first=1, last=100) == Counter(lost=70, data=30)


def test_bytes_of_a_trigger_are_limited(log: Log, where: dict[str, object]) -> None:
    append(log, 5000)  # half a megabyte
    reader = stream(where | {"maxBytesPerTrigger": "128k"})
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxBytes)
    sizes = [sum(len(row["data"]) for row in found) for found in drain(reader)]
    assert sum(sizes) == 5000 * 102
    assert len(sizes) >= 4
    assert max(sizes) <= 128 << 10


def test_the_stricter_of_two_limits_counts(log: Log, where: dict[str, object]) -> None:
    append(log, 3000)
    both = {"maxBytesPerTrigger": "128k", "maxRecordsPerTrigger": "500"}
    assert max(len(found) for found in drain(stream(where | both))) == 500
    both = {"maxBytesPerTrigger": "128k", "maxRecordsPerTrigger": "2500"}
    assert max(len(found) for found in drain(stream(where | both))) < 1400


def test_a_trigger_that_wants_everything_gets_it(log: Log, where: dict[str, object]) -> None:
    append(log, 100)
    reader = stream(where | {"maxRecordsPerTrigger": "10"})
    end = reader.latestOffset(stored(reader.initialOffset()), ALL)
    assert end["orders"][1] == 101


def test_topics_share_a_trigger(log: Log, where: dict[str, object]) -> None:
    append(log, 90, topic="a")
    append(log, 10, topic="b")
    reader = stream(where | {"subscribe": "a,b", "maxRecordsPerTrigger": "20"})
    batches = drain(reader)
    assert max(map(len, batches)) <= 20
    assert Counter(row["topic"] for row in batches[0]) == Counter(a=18, b=2)
    assert sum(map(len, batches)) == 100


def test_a_small_limit_does_not_starve_any_topic(log: Log, where: dict[str, object]) -> None:
    for topic in "abc":
        append(log, 50, topic=topic)
    reader = stream(where | {"subscribe": "a,b,c", "maxRecordsPerTrigger": "1"})
    batches = drain(reader)
    assert {len(found) for found in batches} == {1}
    assert {found[0]["topic"] for found in batches[:6]} == set("abc")
    assert len(batches) == 150


def test_few_records_wait_for_more_but_not_for_ever(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("topics.spark.source.reader.monotonic", lambda: now[0])
    append(log, 10)
    limits = {"minRecordsPerTrigger": "20", "maxTriggerDelay": "60s"}
    reader = stream(where | limits)
    start = stored(reader.initialOffset())
    assert reader.latestOffset(start, ALL) == start
    now[0] += 59
    assert reader.latestOffset(start, ALL) == start
    now[0] += 2
    end = stored(reader.latestOffset(start, ALL))
    assert end["orders"][1] == 11
    append(log, 20)
    assert reader.latestOffset(end, ALL)["orders"][1] == 31  # enough: no need to wait


# All that is there now


def test_available_now_ends_at_the_head_it_began_with(log: Log, where: dict[str, object]) -> None:
    append(log, 25)
    reader = stream(where | {"maxRecordsPerTrigger": "10", "minRecordsPerTrigger": "10"})
    start = stored(reader.initialOffset())
    reader.prepareForTriggerAvailableNow()
    append(log, 100)
    sizes = []
    while True:
        end, found = trigger(reader, start)
        if end == start:
            break
        sizes.append(len(found))
        start = end
    assert sizes == [10, 10, 5]


# Topics that come and go


def test_a_topic_made_anew_gives_one_lost_row_and_starts_over(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 5)
    reader = stream(where)
    old = log.state("orders").epoch
    start, _ = trigger(reader, stored(reader.initialOffset()))
    log.drop("orders")
    append(log, 50)  # already longer than the old position
    end, found = trigger(reader, start)
    lost, *data = found
    assert (lost["kind"], lost["reason"], lost["epoch"]) == ("lost", "recreated", old)
    assert (lost["seq"], lost["last_seq"]) == (6, None)
    assert [row["seq"] for row in data] == list(range(1, 51))
    assert {row["epoch"] for row in data} == {log.state("orders").epoch}
    assert trigger(reader, end) == (end, [])


def test_a_topic_made_anew_and_empty_is_told_of_once(log: Log, where: dict[str, object]) -> None:
    append(log, 5)
    reader = stream(where)
    start, _ = trigger(reader, stored(reader.initialOffset()))
    log.drop("orders")
    log.create("orders", durability="fsync")
    end, found = trigger(reader, start)
    assert [row["reason"] for row in found] == ["recreated"]
    assert trigger(reader, end) == (end, [])


def test_the_lost_row_of_a_new_life_counts_against_the_limit(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 5)
    reader = stream(where | {"maxRecordsPerTrigger": "3"})
    start = stored(reader.latestOffset(stored(reader.initialOffset()), ALL))
    log.drop("orders")
    append(log, 4)
    end, found = trigger(reader, start)
    assert [row["kind"] for row in found] == ["lost", "data", "data"]
    _, found = trigger(reader, end)
    assert [row["seq"] for row in found] == [3, 4]


def test_a_topic_made_anew_fails_a_query_that_may_not_lose(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 5)
    reader = stream(where | {"onLoss": "fail"})
    first, _ = trigger(reader, stored(reader.initialOffset()))
    start, _ = trigger(reader, first)
    log.drop("orders")
    append(log, 2)
    with pytest.raises(RecordsLost, match=r"seq 6 to the end are lost \(recreated\)"):
        trigger(reader, start)


def test_a_dropped_topic_is_waited_for(
    log: Log, where: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 5)
    reader = stream(where)
    start, _ = trigger(reader, stored(reader.initialOffset()))
    log.drop("orders")
    append(log, 1, topic="another")
    with caplog.at_level(logging.WARNING, "topics.spark"):
        assert trigger(reader, start) == (start, [])
        assert trigger(reader, start) == (start, [])
    assert caplog.text.count("topic orders does not exist any more") == 1
    append(log, 2)
    _, found = trigger(reader, start)
    assert [(row["kind"], row["seq"]) for row in found] == [("lost", 6), ("data", 1), ("data", 2)]


def test_a_topic_that_joins_a_pattern_is_read_from_its_start(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 3, topic="orders.eu")
    by_pattern = {"path": where["path"], "subscribePattern": r"orders\..*"}
    reader = stream(by_pattern | {"startingOffsets": "latest"})
    start, _ = trigger(reader, stored(reader.initialOffset()))
    append(log, 4, topic="orders.us")
    _, found = trigger(reader, start)
    assert [(row["topic"], row["seq"]) for row in found] == [
        ("orders.us", seq) for seq in range(1, 5)
    ]


def test_an_idle_stream_waits_for_the_log_rather_than_spin(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, 3)
    waited: list[float] = []
    monkeypatch.setattr(source, "LONG_POLL_S", 1.0)

    def grow(self: directory.DirectoryLog, topic: str, head: object, seconds: float) -> None:
        waited.append(seconds)
        append(log, 1)

    monkeypatch.setattr(directory.DirectoryLog, "wait", grow)
    reader = stream(where)
    start = stored(reader.latestOffset(stored(reader.initialOffset()), ALL))
    assert waited == []  # there was something to read
    assert reader.latestOffset(start, ALL)["orders"][1] == 5
    assert waited == [1.0]


def test_waiting_ends_as_soon_as_a_record_is_written(log: Log, where: dict[str, object]) -> None:
    append(log, 3)
    looked = directory.DirectoryLog(str(where["path"]))
    head = looked.head("orders")
    assert head is not None
    append(log, 1)
    looked.wait("orders", head, 3600)
    assert looked.head("orders") == head._replace(next_seq=5)

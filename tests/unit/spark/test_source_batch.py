"""Batches over a directory: which seqs are read, and the account of each."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.source_rows import account, batch, batch_rows, rows

import topics
from topics.embedded import Log
from topics.engine.recovery.opening import open_view
from topics.errors import TopicNotFound
from topics.spark.errors import CoverageBroken, InvalidOption, RecordsLost
from topics.spark.source import directory, partitions
from topics.spark.source.coverage import Coverage, RowPage
from topics.spark.source.log import PageQuery
from topics.spark.source.partitions import Pack, TopicPartition


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log that stays open, as a server's would; small segments, so that there are some."""
    with topics.open(tmp_path / "data", segment_max_events=50) as opened:
        yield opened


@pytest.fixture
def where(tmp_path: Path) -> dict[str, object]:
    return {"path": tmp_path / "data", "subscribe": "orders"}


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """Be an executor that sees the directory for the first time."""
    directory._shared.clear()


def append(log: Log, count: int, *, topic: str = "orders", node: str | None = None) -> None:
    start = log.state(topic).head_seq if topic in {t.topic for t in log.topics()} else 0
    log.append(
        topic,
        [
            {"data": {"n": seq}, "tag": f"c:{seq % 5}", "meta": {"m": seq}}
            for seq in range(start + 1, start + count + 1)
        ],
        node=node,
    )


def test_records_come_with_everything_they_were_written_with(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 3, node="gw")
    first, *_ = batch_rows(where)
    stored = log.read("orders", limit=1).records[0]
    assert first | {"ts": None} == {
        "topic": "orders",
        "epoch": log.state("orders").epoch,
        "seq": 1,
        "last_seq": 1,
        "kind": "data",
        "reason": None,
        "ts": None,
        "node": "gw",
        "tag": "c:1",
        "data": '{"n":1}',
        "meta": '{"m":1}',
    }
    assert int(first["ts"].timestamp() * 1000) == stored.ts


def test_every_seq_is_a_record_or_told_of(log: Log, where: dict[str, object]) -> None:
    append(log, 300)
    log.checkpoint()
    log.delete("orders", match="c:2")
    log.configure("orders", cap_records=180)
    found = batch_rows(where | {"includeDeleted": "true", "minPartitions": "4"})
    audit = log.audit("orders")
    assert account(found, first=1, last=300) == Counter(
        data=audit.live, lost=audit.lost_cap, deleted=audit.deleted
    )
    assert {row["reason"] for row in found if row["kind"] == "lost"} == {"cap"}


def test_without_deletes_asked_for_they_are_passed_over(log: Log, where: dict[str, object]) -> None:
    append(log, 20)
    log.delete("orders", match="c:2")
    assert [row["seq"] for row in batch_rows(where)] == [s for s in range(1, 21) if s % 5 != 2]


def test_a_filter_leaves_out_what_does_not_match(log: Log, where: dict[str, object]) -> None:
    append(log, 10, node="a")
    append(log, 10, node="b")
    assert {row["tag"] for row in batch_rows(where | {"match": "c:3"})} == {"c:3"}
    assert len(batch_rows(where | {"match": "c:*"})) == 20
    assert [row["seq"] for row in batch_rows(where | {"node": "a, c"})] == list(range(11, 21))


@pytest.mark.parametrize(
    ("edges", "seqs"),
    [
        ({}, range(1, 21)),
        ({"startingOffsets": '{"orders": 5}'}, range(5, 21)),
        ({"startingOffsets": '{"orders": 5}', "endingOffsets": '{"orders": 8}'}, range(5, 8)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"endingOffsets": "earliest"}, range(0)),
        ({"endingOffsets": '{"orders": 1000}'}, range(1, 21)),
        ({"startingOffsets": '{"orders": "latest"}'}, range(0)),
        ({"startingTimestamp": "0"}, range(1, 21)),
        ({"startingTimestamp": "4000000000000"}, range(0)),
        ({"endingTimestamp": "-1 day"}, range(0)),
    ],
)
def test_a_range_begins_and_ends_where_it_is_told(
    log: Log, where: dict[str, object], edges: dict[str, str], seqs: range
) -> None:
    append(log, 20)
    assert [row["seq"] for row in batch_rows(where | edges)] == list(seqs)


def test_a_start_behind_the_end_is_a_mistake(log: Log, where: dict[str, object]) -> None:
    append(log, 20)
    with pytest.raises(InvalidOption, match="begins at seq 22 of orders, which ends at 20"):
        batch(where | {"startingOffsets": '{"orders": 22}'}).partitions()


def test_a_topic_that_does_not_exist_is_named(log: Log, where: dict[str, object]) -> None:
    append(log, 1)
    with pytest.raises(TopicNotFound, match="payments"):
        batch(where | {"subscribe": "orders,payments"}).partitions()


def test_what_only_the_owners_memory_has_is_told_of_once(
    log: Log, where: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 3)
    with caplog.at_level(logging.WARNING, "topics.spark"):
        for _ in range(2):
            assert len(batch_rows(where)) == 3
    assert caplog.text.count("records that its owner has only in memory are not there yet") == 1
    log.create("screens", durability="ephemeral")
    with pytest.raises(InvalidOption, match="'screens' are only in the memory of its owner"):
        batch(where | {"subscribe": "screens"}).partitions()


def test_a_pattern_takes_the_topics_it_matches_whole(log: Log, where: dict[str, object]) -> None:
    for topic in ("orders", "orders.eu", "old.orders"):
        append(log, 2, topic=topic)
    found = batch_rows({"path": where["path"], "subscribePattern": r"orders.*"})
    assert {row["topic"] for row in found} == {"orders", "orders.eu"}


def test_nothing_to_read_is_no_partition_and_no_row(log: Log, where: dict[str, object]) -> None:
    log.create("orders")
    reader = batch(where)
    assert reader.partitions() == []
    assert rows(reader, [TopicPartition("orders", log.state("orders").epoch, 1, 0)]) == []


def test_partitions_are_as_many_and_as_small_as_asked_for(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 400)
    log.checkpoint()
    many = batch(where | {"minPartitions": "8"}).partitions()
    assert len(many) >= 8
    small = batch(where | {"maxRecordsPerPartition": "30"}).partitions()
    sizes = [piece.last - piece.first + 1 for piece in small if isinstance(piece, TopicPartition)]
    assert sum(sizes) == 400
    assert max(sizes) <= 30


def test_all_topics_of_a_busy_directory_share_one_look(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"orders.{number}" for number in range(5)]
    for name in names:
        append(log, 3, topic=name)
    looks = []

    def noted(*asked: Any) -> Any:  # noqa: ANN401 - as the original
        looks.append(asked)
        append(log, 1, topic="busy")  # every look finds the directory changed
        return open_view(*asked)

    monkeypatch.setattr(directory, "open_view", noted)
    reader = batch({"path": where["path"], "subscribe": ",".join(names)})
    assert len(rows(reader, reader.partitions())) == 15
    assert len(looks) == 2, "one to open the directory, one for the ends of all topics"


def test_small_topics_share_a_task_and_large_ones_do_not(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"orders.{number}" for number in range(20)]
    for name in names:
        append(log, 5, topic=name)
    everything = {"path": where["path"], "subscribe": ",".join(names)}
    (pack,) = batch(everything).partitions()
    assert isinstance(pack, Pack)
    found = rows(batch(everything), [pickle.loads(pickle.dumps(pack))])
    assert [(row["topic"], row["seq"]) for row in found] == [
        (name, seq) for name in names for seq in range(1, 6)
    ]
    assert len(batch(everything | {"minPartitions": "1"}).partitions()) == 20
    assert len(batch(everything | {"maxRecordsPerPartition": "9"}).partitions()) == 20
    monkeypatch.setattr(partitions, "PACK_BYTES", 5 * partitions.PACKED_PIECE_BYTES)
    assert len(batch(everything).partitions()) == 4
    monkeypatch.setattr(partitions, "PACK_BYTES", 1)
    assert len(batch(everything).partitions()) == 20


def test_a_reader_travels_to_another_process(log: Log, where: dict[str, object]) -> None:
    append(log, 10)
    reader = batch(where)
    pieces = reader.partitions()
    travelled, arrived = pickle.loads(pickle.dumps((reader, pieces)))
    assert [row["seq"] for row in rows(travelled, arrived)] == list(range(1, 11))


def test_columns_come_in_the_order_of_the_schema(log: Log, where: dict[str, object]) -> None:
    append(log, 2)
    reader = batch(where | {"onLoss": "skip"}, "data string, seq bigint NOT NULL")
    (found,) = reader.read(reader.partitions()[0])
    assert found.schema.names == ["data", "seq"]
    assert not found.schema.field("seq").nullable
    assert found.to_pylist()[0] == {"data": '{"n":1}', "seq": 1}


def test_batches_have_the_rows_asked_for(log: Log, where: dict[str, object]) -> None:
    append(log, 250)
    reader = batch(where | {"batchRows": "100"})
    (piece,) = reader.partitions()
    assert [found.num_rows for found in reader.read(piece)] == [100, 100, 50]


# What happens between planning and reading


def test_retention_that_passes_a_plan_gives_lost_rows(log: Log, where: dict[str, object]) -> None:
    append(log, 100)
    reader = batch(where)
    planned = reader.partitions()
    log.configure("orders", cap_records=30)
    log.checkpoint()
    forget()
    assert account(rows(reader, planned), first=1, last=100) == Counter(lost=70, data=30)


def test_deletes_that_land_after_planning_are_honoured(log: Log, where: dict[str, object]) -> None:
    append(log, 100)
    log.checkpoint()
    reader = batch(where | {"includeDeleted": "true"})
    planned = reader.partitions()
    log.delete("orders", before_seq=41)
    log.checkpoint()
    forget()
    assert account(rows(reader, planned), first=1, last=100) == Counter(deleted=40, data=60)


def test_what_was_deleted_when_planning_never_comes_back_from_an_older_look(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 100)
    log.checkpoint()
    batch_rows(where)  # this executor has looked before the delete
    looked_before = dict(directory._shared)
    log.delete("orders", before_seq=41)
    forget()
    reader = batch(where | {"includeDeleted": "true"})
    planned = reader.partitions()
    directory._shared.update(looked_before)
    assert account(rows(reader, planned), first=1, last=100) == Counter(deleted=40, data=60)


def test_a_topic_dropped_after_planning_is_lost(log: Log, where: dict[str, object]) -> None:
    append(log, 10)
    reader = batch(where)
    planned = reader.partitions()
    log.drop("orders")
    append(log, 1, topic="another")
    forget()
    (row,) = rows(reader, planned)
    assert (row["kind"], row["reason"], row["seq"], row["last_seq"]) == ("lost", "dropped", 1, 10)


def test_a_topic_made_anew_after_planning_is_lost_too(log: Log, where: dict[str, object]) -> None:
    append(log, 10)
    reader = batch(where)
    planned = reader.partitions()
    log.drop("orders")
    append(log, 50)
    forget()
    (row,) = rows(reader, planned)
    assert (row["reason"], row["seq"], row["last_seq"]) == ("recreated", 1, 10)


def test_files_that_move_under_a_reader_are_found_again(log: Log, where: dict[str, object]) -> None:
    append(log, 200)
    reader = batch(where | {"batchRows": "10"})
    (piece,) = reader.partitions()
    found = reader.read(piece)
    seen = [next(found)]
    log.checkpoint()  # the log's records move to segments,
    append(log, 1)
    log.checkpoint()  # and the log files they were in go
    log.checkpoint()
    seen += found
    assert [seq for some in seen for seq in some.column("seq").to_pylist()] == list(range(1, 201))


def test_a_file_that_stays_away_is_an_error_after_three_looks(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, 10)
    reader = batch(where)
    (piece,) = reader.partitions()
    looks: list[int] = []

    def missing(self: directory.DirectoryLog, topic: str, query: PageQuery) -> RowPage:
        looks.append(query.first)
        raise FileNotFoundError("seg-1")

    monkeypatch.setattr(directory.DirectoryLog, "_page", missing)
    with pytest.raises(FileNotFoundError):
        rows(reader, [piece])
    assert len(looks) == directory.LOOKS


def test_fewer_rows_than_announced_are_never_passed_on(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, 10)
    reader = batch(where)
    (piece,) = reader.partitions()
    whole = directory.DirectoryLog._page

    def short(self: directory.DirectoryLog, topic: str, query: PageQuery) -> RowPage:
        page = whole(self, topic, query)
        return page._replace(batches=[found.slice(1) for found in page.batches])

    monkeypatch.setattr(directory.DirectoryLog, "_page", short)
    with pytest.raises(CoverageBroken, match="9 rows came where 10 were announced"):
        rows(reader, [piece])


def test_a_topic_that_has_become_shorter_is_lost_from_there(
    log: Log, where: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, 10)
    reader = batch(where)
    (piece,) = reader.partitions()
    whole = directory.DirectoryLog._page

    def shrunk(self: directory.DirectoryLog, topic: str, query: PageQuery) -> RowPage:
        if query.first > 4:
            return RowPage(1, Coverage(query.first, query.first - 1, 0, 0, []), [])
        kept = PageQuery(query.first, 4, query.rows, query.delete_version)
        return whole(self, topic, kept)

    monkeypatch.setattr(directory.DirectoryLog, "_page", shrunk)
    found = rows(reader, [piece])
    assert account(found, first=1, last=10) == Counter(data=4, lost=6)
    assert found[-1]["reason"] == "crash"


def test_records_that_rot_are_lost_and_their_neighbours_are_not(
    log: Log, where: dict[str, object], tmp_path: Path
) -> None:
    append(log, 60)
    log.checkpoint()
    append(log, 1)
    log.checkpoint()
    log.checkpoint()  # the log files that still had a copy are gone
    segment = min(tmp_path.rglob("seg-*.data"))
    stored = bytearray(segment.read_bytes())
    start, end = stored.index(b'{"n":20}'), stored.index(b'{"n":27}') + 8
    stored[start:end] = bytes(end - start)
    segment.write_bytes(stored)
    found = batch_rows(where)
    assert account(found, first=1, last=61) == Counter(data=53, lost=8)
    lost = [row for row in found if row["kind"] == "lost"]
    assert {row["reason"] for row in lost} == {"crash"}
    assert (lost[0]["seq"], lost[-1]["last_seq"]) == (20, 27)


# Loss


def test_loss_fails_a_read_that_asks_for_that(log: Log, where: dict[str, object]) -> None:
    append(log, 20)
    reader = batch(where | {"onLoss": "fail"})
    planned = reader.partitions()
    log.configure("orders", cap_records=5)
    log.checkpoint()
    forget()
    with pytest.raises(RecordsLost, match=r"seq 1 to 15 are lost \(cap\).*onLoss=rows"):
        rows(reader, planned)


def test_losses_of_the_past_do_not_fail_a_read_from_the_earliest(
    log: Log, where: dict[str, object]
) -> None:
    append(log, 20)
    log.configure("orders", cap_records=5)
    found = batch_rows(where | {"onLoss": "fail"})
    assert [row["seq"] for row in found] == list(range(16, 21))


def test_loss_can_be_skipped(log: Log, where: dict[str, object]) -> None:
    append(log, 20)
    log.configure("orders", cap_records=5)
    assert {row["kind"] for row in batch_rows(where | {"onLoss": "skip"})} == {"data"}

"""A topic as a Delta table, on a real Spark and a real server: the same rows for everybody, deletes
that reach them, and bytes that are gone when the receipt says so."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import httpx
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.blackbox.conftest import ServerProcess

import topics
from topics.bench.spark import main as bench
from topics.cli import _app as cli
from topics.client.targets import Target
from topics.spark.errors import ForeignTable, SyncFailed
from topics.spark.lake.parquet import staged_stem
from topics.spark.lake.place import TablePath
from topics.spark.lake.syncing import Sync, SyncedEpoch, SyncTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

MILLION = 1_000_000
CUSTOMER = "cust-0042"
NEEDLE = "anna.mueller@example.org"
COLUMNS = ["epoch", "seq", "ts", "node", "tag", "data", "meta"]


class Topic:
    """One topic of a server, over plain HTTP."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.server = server
        self.name = name
        self._http = httpx.Client(base_url=server.url, timeout=300)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str = "", body: object = None) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.request(method, f"/v0/topics/{self.name}{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def append(self, first: int, last: int, **config: object) -> None:
        records = [{"data": {"n": n}, "tag": f"cust-{n % 10}"} for n in range(first, last + 1)]
        self.call("POST", body={"records": records, **config})

    def delete(self, **which: object) -> int:
        deleted: int = self.call("POST", "/delete", which)["deleted"]
        return deleted

    @contextmanager
    def staging(self, app: str, records: list[dict[str, object]]) -> Iterator[None]:
        """The records are staged in the block, and in the topic after it."""
        rows = [{"topic": self.name, **record} for record in records]
        path = f"/v0/stages/{app}/0"
        self._http.post(f"{path}/0/0", json={"records": rows}).raise_for_status()
        yield
        self._http.post(f"{path}/commit", json={"parts": [[0, 0]]}).raise_for_status()

    def cursor(self, name: str) -> int:
        seq: int = self.call("GET", f"/cursors/{name}")["seq"]
        return seq

    def task(self, place: TablePath, **options: Any) -> SyncTask:  # noqa: ANN401 - fields of the task
        return SyncTask(self.name, place, Target(url=self.server.url), **{"once": True, **options})


@pytest.fixture
def log(shared_server: ServerProcess, topic: str) -> Iterator[Topic]:
    made = Topic(shared_server, topic)
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path) -> TablePath:
    return TablePath.of(str(tmp_path / "orders"))


def seqs_in(place: TablePath) -> list[int]:
    table = DeltaTable(place.path).to_pyarrow_table(columns=["seq"])
    return sorted(table.column("seq").to_pylist())


# A million records


class Big:
    """A million records, a customer in a thousand of them, and a table they were deleted from."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.place = TablePath.of(str(root / "lake" / "orders"))
        self.server = ServerProcess(root, {"TOPICS_MAX_LIMIT": "10000"}, ())
        self._fill()
        self.server.start()
        self.topic = Topic(self.server, "orders")
        self.staged: list[str] = []
        with self.topic.staging("importer", [record(CUSTOMER, n) for n in range(100)]):
            self.staged = files_with(self.server.data_dir / "stages", NEEDLE)
        self.rows_synced = Sync(self.topic.task(self.place)).run(spark).rows
        self.before = seqs_in(self.place)
        self.deleted = self.topic.delete(match=CUSTOMER) + self.topic.delete(before_seq=2001)
        self.carried = Sync(self.topic.task(self.place, reconcile=True)).run(spark).deleted

    def _fill(self) -> None:
        encode = msgspec.json.encode
        with topics.open(self.server.data_dir) as log:
            log.create("orders", durability="memory")
            for first in range(0, MILLION, 20_000):
                batch: list[dict[str, object]] = [
                    {"data": encode({"n": n}), "tag": f"cust-{n % 1000:04d}"}
                    for n in range(first, first + 20_000)
                ]
                for n in range(42, 20_000, 1000):
                    batch[n] = record(CUSTOMER, first + n)
                for half in (batch[:10_000], batch[10_000:]):
                    log.append("orders", half)

    def end(self) -> None:
        self.topic.close()
        self.server.end()


def record(tag: str, n: int) -> dict[str, object]:
    return {"data": {"n": n, "mail": NEEDLE}, "tag": tag}


@pytest.fixture(scope="module")
def big(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Big]:
    made = Big(tmp_path_factory.mktemp("big"), spark)
    yield made
    made.end()


class Row(msgspec.Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag", "node": "$node"}):
    seq: int
    ts: int
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None


class Page(msgspec.Struct):
    records: list[Row]
    next_from_seq: int
    caught_up: bool


def through_diff(topic: Topic) -> pa.Table:
    """Every record, by asking for page after page."""

    rows: list[Row] = []
    body: dict[str, object] = {"from_seq": 0, "limit": 10_000, "max_batch_bytes": 8 << 20}
    body["include_tags"] = True
    decode = msgspec.json.Decoder(Page).decode
    while True:
        answer = topic._http.post(f"/v0/topics/{topic.name}/diff", json=body)
        page = decode(answer.raise_for_status().content)
        rows += page.records
        body["from_seq"] = page.next_from_seq
        if page.caught_up:
            break
    epoch = topic.call("GET")["epoch"]
    return pa.table(
        {
            "epoch": pa.repeat(epoch, len(rows)),
            "seq": pa.array([row.seq for row in rows], pa.int64()),
            "ts": pa.array([row.ts * 1000 for row in rows], pa.timestamp("us", "UTC")),
            "node": pa.array([row.node for row in rows], pa.string()),
            "tag": pa.array([row.tag for row in rows], pa.string()),
            "data": pa.array([bytes(row.data).decode() for row in rows], pa.string()),
            "meta": pa.nulls(len(rows), pa.string()),
        }
    )


def test_a_million_records_with_deletes_are_the_same_rows_to_diff_spark_duckdb_and_delta(
    big: Big, spark: SparkSession
) -> None:
    wanted = through_diff(big.topic)
    assert (big.rows_synced, big.before) == (MILLION + 100, list(range(1, MILLION + 101)))
    assert big.carried == big.deleted > 2000
    assert wanted.num_rows == MILLION + 100 - big.deleted
    assert CUSTOMER not in pc.unique(wanted.column("tag")).to_pylist()

    table = DeltaTable(big.place.path)
    with duckdb.connect() as duck:
        duck.register("orders", table.to_pyarrow_dataset())
        in_duckdb = duck.sql("SELECT * FROM orders").to_arrow_table()
    found = {
        "delta-rs": table.to_pyarrow_table(),
        "DuckDB": in_duckdb,
        "Spark": spark.read.parquet(*table.file_uris()).toArrow(),
    }
    for reader, rows in found.items():
        assert rows.num_rows == wanted.num_rows, reader
        ordered = rows.select(COLUMNS).sort_by("seq")
        for name in COLUMNS:
            column = ordered.column(name).cast(wanted.schema.field(name).type)
            assert column.combine_chunks().equals(wanted.column(name).combine_chunks()), (
                reader,
                name,
            )


def files_with(root: Path, needle: str) -> list[str]:
    """Files with the needle in their bytes or in a decoded column; written without the scan."""
    found = []
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            raw = path.read_bytes()
            is_there = needle.encode() in raw
            if raw[:4] == b"PAR1":
                table = pq.read_table(path)
                for column in table.columns:
                    if pa.types.is_string(column.type):
                        is_there |= pc.any(pc.match_substring(column, needle)).as_py() is True
            if is_there:
                found.append(str(path.relative_to(root)))
    return found


def test_after_maintenance_the_customers_bytes_are_nowhere_in_the_table_nor_in_a_stage(
    big: Big, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, data_dir = Path(big.place.path), big.server.data_dir
    needles = tmp_path / "needles"
    needles.write_text(f"{NEEDLE}\n{CUSTOMER}\n")
    orphan = table / f"part-{'0' * 8}-0000-0000-0000-{'0' * 12}-9-0-0-00000000-0.parquet"
    pq.write_table(pa.table({"data": [NEEDLE]}), orphan)  # as a killed task leaves one
    kept = cli.run(
        ["lake", "maintain", str(table), "--retain", "1h", "--needle-file", str(needles)]
    )
    assert kept == 1  # nothing could go yet, and the search says so
    assert "FOUND" in capsys.readouterr().out
    assert files_with(table, NEEDLE)
    assert big.staged, "the customer's records came through a stage"

    receipt = tmp_path / "receipt.json"
    for _ in range(2):  # two checkpoints later the log needs no stage any more
        assert big.server.stop() == 0
        big.server.start()
    done = cli.run(
        [
            *("lake", "maintain", str(table), "--retain", "0h", "--receipt", str(receipt)),
            *("--needle-file", str(needles), "--url", big.server.url),
        ]
    )

    assert done == 0, capsys.readouterr().out
    assert files_with(table, NEEDLE) == files_with(table, CUSTOMER) == []
    assert files_with(data_dir / "stages", NEEDLE) == []
    told = json.loads(receipt.read_text())
    assert told["found"] == 0
    assert sum(last - first + 1 for first, last in told["seqs"]) == big.deleted
    assert told["scanned"]["decoded_rows"] >= MILLION + 100 - big.deleted
    assert orphan.name in [file["path"] for file in told["files_removed"]]
    assert NEEDLE not in receipt.read_text()
    # The log keeps its own rule, and the receipt says so.
    assert files_with(data_dir / "topics", NEEDLE)
    assert told["kept_elsewhere"][0]["what"] == "log segments"
    assert "whole segment is dropped" in told["kept_elsewhere"][0]["why"]
    assert len(seqs_in(big.place)) == MILLION + 100 - big.deleted


# Small ones


def test_a_sync_goes_on_where_it_was_and_its_cursor_says_where_that_is(
    log: Topic, place: TablePath, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append(1, 100)
    ask = ["lake", "sync", log.name, f"file://{place.path}", "--once", "--url", log.server.url]
    assert cli.run(ask) == 0
    assert "100 rows in 1 epochs" in capsys.readouterr().out
    log.append(101, 150)
    assert cli.run([*ask, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (lines[0]["epoch"], lines[0]["rows"], lines[0]["lag"]) == (1, 50, 0)
    assert lines[-1]["ended"]["position"] == 150
    assert seqs_in(place) == list(range(1, 151))
    assert log.cursor("lake.orders") == 150
    assert os.path.isdir(place.checkpoint)


def test_fields_of_data_are_columns_that_grow_and_what_does_not_fit_is_told(
    log: Topic, place: TablePath, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["lake", "sync", log.name, place.path, "--once", "--url", log.server.url]
    log.append(1, 100)
    assert cli.run([*ask, "--schema", "auto"]) == 0
    log.call("POST", body={"records": [{"data": {"n": 0.5, "who": {"x": [1]}}, "tag": "late"}]})
    log.call("POST", body={"records": [{"data": {"n": "five"}, "tag": "late"}]})
    log.delete(match="cust-3")
    capsys.readouterr()
    assert cli.run([*ask, "--json"]) == 0
    said = capsys.readouterr()
    assert f"1 records do not fit the columns: see {place.bad.path}" in said.err
    assert json.loads(said.out.splitlines()[-1])["ended"]["unfit"] == 1
    rows = spark.read.parquet(*DeltaTable(place.path).file_uris()).orderBy("seq").collect()
    assert [row.n for row in rows] == [float(n) for n in range(1, 101) if n % 10 != 3] + [0.5]
    assert rows[-1].who.x == [1]
    (bad,) = DeltaTable(place.bad.path).to_pyarrow_table().to_pylist()
    assert (bad["seq"], bad["data"]) == (102, '{"n":"five"}')
    log.delete(match="late")
    assert cli.run([*ask, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ended"] | {"seconds": 0} == {
        "epochs": 0,
        "rows": 0,
        "deleted": 2,
        "position": 102,
        "table_version": DeltaTable(place.path).version(),
        "seconds": 0,
        "unfit": 0,
    }


def test_a_lost_checkpoint_costs_nothing_because_the_table_knows_where_it_is(
    log: Topic, place: TablePath, spark: SparkSession, tmp_path: Path
) -> None:
    log.append(1, 100)
    Sync(log.task(place)).run(spark)
    log.append(101, 120)
    elsewhere = str(tmp_path / "another checkpoint")
    assert Sync(log.task(place, checkpoint=elsewhere)).run(spark).rows == 20
    assert seqs_in(place) == list(range(1, 121))
    with pytest.raises(SyncFailed, match="does not belong to the table"):
        Sync(log.task(place)).run(spark)  # the first one is behind now
    assert seqs_in(place) == list(range(1, 121))


def test_losses_and_a_recreated_topic_are_rows_of_the_loss_table(
    log: Topic, place: TablePath, spark: SparkSession
) -> None:
    log.call("PUT", body={"cap_records": 50})
    log.append(1, 200)
    Sync(log.task(place)).run(spark)
    first = log.call("GET")["epoch"]
    log.append(201, 300)
    Sync(log.task(place)).run(spark)
    log.call("DELETE")
    log.append(1, 30)
    second = log.call("GET")["epoch"]
    Sync(log.task(place)).run(spark)
    rows = DeltaTable(place.path).to_pyarrow_table().sort_by([("epoch", "ascending")])
    by_epoch = rows.group_by("epoch").aggregate([("seq", "count")]).to_pylist()
    assert {row["epoch"]: row["seq_count"] for row in by_epoch} == {first: 100, second: 30}
    lost = DeltaTable(place.loss.path).to_pyarrow_table().sort_by("seq").to_pylist()
    assert [(r["epoch"], r["seq"], r["last_seq"], r["reason"]) for r in lost] == [
        (first, 1, 150, "cap"),
        (first, 201, 250, "cap"),
        (first, 301, None, "recreated"),
    ]


def test_rows_that_only_the_table_still_has_are_deleted_by_their_tag(
    log: Topic, place: TablePath, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append(1, 100)
    Sync(log.task(place)).run(spark)
    log.call("PUT", body={"cap_records": 10})
    log.append(101, 110)  # the first hundred are evicted from the log
    Sync(log.task(place)).run(spark)
    ask = ["lake", "delete", place.path, "--match", "cust-7", "--yes", "--json"]
    assert cli.run(ask) == 0
    assert json.loads(capsys.readouterr().out)["deleted"] == 11
    assert cli.run(ask) == 0
    assert json.loads(capsys.readouterr().out)["deleted"] == 0
    assert cli.run(["lake", "maintain", place.path, "--retain", "0h", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seqs"] == [[n, n] for n in range(7, 111, 10)]
    Sync(log.task(place, reconcile=True)).run(spark)
    assert seqs_in(place) == [n for n in range(1, 111) if n % 10 != 7]


@pytest.mark.timeout(1200)
def test_a_running_sync_carries_a_delete_over_although_nothing_arrives_and_ends_when_told(
    log: Topic, place: TablePath, spark: SparkSession
) -> None:
    log.append(1, 100)
    stopping, arrived, gone = threading.Event(), threading.Event(), threading.Event()
    task = log.task(place, once=False, trigger="1 second")

    def epoch_ended(epoch: SyncedEpoch) -> None:
        arrived.set()

    def notice(line: str) -> None:
        if "left the table" in line:
            gone.set()

    def disturb() -> None:
        if arrived.wait(400):
            log.delete(match="cust-3")
            gone.wait(400)
        stopping.set()

    helper = threading.Thread(target=disturb)
    helper.start()
    done = Sync(task, report=epoch_ended, notice=notice).run(spark, stopping)
    helper.join()
    assert gone.is_set()
    assert done.deleted == 10
    assert seqs_in(place) == [n for n in range(1, 101) if n % 10 != 3]


def test_files_that_a_killed_run_left_are_removed_by_the_next(
    log: Topic, place: TablePath, spark: SparkSession
) -> None:
    log.append(1, 10)
    Sync(log.task(place)).run(spark)
    left = Path(place.path, f"{staged_stem('0' * 36, 5)}0-17-0123abcd-0.parquet")
    left.write_bytes(b"PAR1, and then the task was killed")
    said: list[str] = []
    Sync(log.task(place), notice=said.append).run(spark)
    assert said == ["removed 1 files that an earlier run left behind"]
    assert not left.exists()


def test_a_sync_that_cannot_work_says_why(
    log: Topic, place: TablePath, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["lake", "sync", "absent", place.path, "--once", "--url", log.server.url]
    assert cli.run(ask) == 3
    assert capsys.readouterr().err == (
        'topics: topic "absent" does not exist; create it or write to it first\n'
    )
    assert not os.path.exists(place.path)
    assert cli.run(["lake", "maintain", place.path]) == 3
    assert "lake sync" in capsys.readouterr().err
    assert cli.run(["lake", "sync", "absent", "s3://bucket/orders", "--url", log.server.url]) == 2
    log.append(1, 10)
    Sync(log.task(place)).run(spark)
    another = Topic(log.server, f"{log.name}.other")
    another.append(1, 10)
    with pytest.raises(ForeignTable, match=f"is the table of topic {log.name}"):
        Sync(another.task(place)).run(spark)
    another.close()


@pytest.mark.usefixtures("spark")
def test_the_benchmark_of_a_sync_measures_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--scale", "0.0005", "--quick", "--json", "--dir", str(tmp_path)]
    assert bench(["--rows", "lake", *tiny]) == 0
    (result,) = json.loads(capfd.readouterr().out)
    assert (result["row"], result["what"]) == ("lake", "topics lake sync")
    assert result["value"] > 0
    assert list(tmp_path.iterdir()) == []

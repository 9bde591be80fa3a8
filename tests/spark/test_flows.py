"""Flows on a real Spark: what goes in comes out once, and what is lost or bad is said aloud."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from deltalake import DeltaTable
from tests.blackbox.conftest import ServerProcess
from tests.spark.conftest import CONF

from topics import cli
from topics.client.targets import Target
from topics.spark.errors import FlowFailed, FlowRuns
from topics.spark.flows import state
from topics.spark.flows.file import load
from topics.spark.flows.progress import BatchProgress
from topics.spark.flows.running import Outcome, run
from topics.spark.source.options import READ_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 480.0
SCHEMA = "id long, cents long, at timestamp"

pytestmark = pytest.mark.timeout(1200)


class Log:
    """A server with topics of this test's own."""

    def __init__(self, server: ServerProcess, folder: Path, prefix: str) -> None:
        self.server = server
        self.folder = folder
        self.orders, self.out = f"{prefix}.orders", f"{prefix}.out"
        self.view = self.orders.replace(".", "_").replace("-", "_")
        self._http = httpx.Client(base_url=server.url, timeout=60)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()

    def create(self, topic: str, **config: object) -> None:
        self.call("PUT", f"/v0/topics/{topic}", {"durability": "disk", **config})

    def append(self, topic: str, datas: Iterable[object], **fields: object) -> None:
        records = [{"data": data, **fields} for data in datas]
        self.call("POST", f"/v0/topics/{topic}", {"records": records})

    def records(self, topic: str) -> list[dict[str, Any]]:
        body = {"limit": 1000, "include_tags": True}
        page = self.call("POST", f"/v0/topics/{topic}/diff", body)
        assert page["caught_up"]
        found: list[dict[str, Any]] = page["records"]
        return found

    def datas(self, topic: str) -> list[Any]:
        return [record["data"] for record in self.records(topic)]

    def run(
        self, text: str, name: str = "flow.yaml", *, batches: list[BatchProgress] | None = None
    ) -> Outcome:
        """Run a flow until it has read everything; `ORDERS`, `VIEW` and `OUT` are filled in."""
        flow = load(self.write(text, name), source_options=READ_OPTIONS)
        flow = replace(flow, trigger="once")
        report = (lambda _: None) if batches is None else batches.append
        return run(flow, Target(url=self.server.url), report=report)

    def write(self, text: str, name: str = "flow.yaml") -> Path:
        for word, meant in (("VIEW", self.view), ("ORDERS", self.orders), ("OUT", self.out)):
            text = text.replace(word, meant)
        file = self.folder / name
        file.write_text(text)
        return file


@pytest.fixture
def log(
    spark: SparkSession,
    shared_server: ServerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Log]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOPICS_URL", shared_server.url)
    log = Log(shared_server, tmp_path, f"flows.{topic}")
    log.create(log.orders)
    yield log
    log.close()
    for query in spark.streams.active:
        query.stop()


def order(number: int, at: str = "2026-03-01T09:00:00Z") -> dict[str, object]:
    return {"id": number, "cents": 100 * number, "at": at}


# Exactly once


TOTALS = f"""
name: totals
from: {{ORDERS: {{schema: "{SCHEMA}", startingOffsets: earliest}}}}
sql: |
  SELECT window.start AS minute, count(*) AS n, sum(cents) AS cents
  FROM VIEW WATERMARK at DELAY OF INTERVAL 10 SECONDS GROUP BY window(at, '1 minute')
to: {{topic: OUT}}
"""


def test_windows_are_written_once_over_several_runs_and_the_cursor_shows_the_lag(log: Log) -> None:
    log.append(log.orders, [order(n, f"2026-03-01T09:00:{n:02}Z") for n in range(1, 31)])
    batches: list[BatchProgress] = []
    assert log.run(TOTALS, batches=batches).rows == 30
    assert batches[0].rows == 30
    assert log.call("POST", f"/v0/topics/{log.orders}/diff", {"from_seq": 30})["caught_up"]
    log.append(log.orders, [order(31, "2026-03-01T09:05:00Z")])
    cursor = log.call("GET", f"/v0/topics/{log.orders}/cursors/flow.totals")
    assert (cursor["seq"], cursor["lag_records"]) == (30, 1)
    assert log.run(TOTALS).rows == 1
    assert log.run(TOTALS).rows == 0
    (row,) = log.datas(log.out)
    assert (row["n"], row["cents"]) == (30, sum(100 * n for n in range(1, 31)))
    assert row["minute"].startswith("2026-03-01T09:00:00")
    cursor = log.call("GET", f"/v0/topics/{log.orders}/cursors/flow.totals")
    assert (cursor["seq"], cursor["lag_records"], cursor["lag_seconds"]) == (31, 0, 0)
    metrics = httpx.get(f"{log.server.url}/v0/metrics", timeout=60).text
    labels = f'{{topic="{log.orders}",cursor="flow.totals"}}'
    assert f"topics_cursor_lag_records{labels} 0" in metrics
    assert f"topics_cursor_lag_seconds{labels} 0" in metrics


def test_a_copy_keeps_tags_nodes_and_meta(log: Log) -> None:
    log.append(log.orders, [order(1)], tag="eu", node="gw-1", meta={"trace": 5})
    log.append(log.orders, [{"deep": [1, {"x": None}]}])
    log.run(
        "from: {ORDERS: {startingOffsets: earliest}}\nsql: SELECT * FROM VIEW\nto: {topic: OUT}"
    )
    copied, plain = log.records(log.out)
    assert copied["data"] == order(1)
    assert (copied["$tag"], copied["$node"], copied["meta"]) == ("eu", "gw-1", {"trace": 5})
    assert plain["data"] == {"deep": [1, {"x": None}]}
    assert "$tag" not in plain


PYTHON = f"""
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

flow = {{
    "from": {{
        "ORDERS": {{"schema": "{SCHEMA}", "startingOffsets": "earliest"}},
        "ORDERS.names": {{"schema": "id long, name string", "startingOffsets": "earliest"}},
    }},
    "to": {{"table": "./lake/named"}},
}}

@F.udf(StringType())
def shout(name):
    return name.upper()

def transform(orders, names):
    joined = orders.alias("o").join(names.alias("n"), F.col("o.id") == F.col("n.id"))
    return joined.select("o.id", shout("n.name").alias("name"), "o.cents")
"""


def test_a_flow_in_python_joins_two_topics_into_a_table(log: Log) -> None:
    log.append(log.orders, [order(1), order(2)])
    log.create(f"{log.orders}.names")
    names = {1: "ann", 3: "eve", 2: "bob"}
    log.append(f"{log.orders}.names", [{"id": n, "name": name} for n, name in names.items()])
    log.run(PYTHON, "named.py")
    table = DeltaTable(str(log.folder / "lake" / "named")).to_pyarrow_table()
    assert sorted(table.to_pylist(), key=lambda row: int(row["id"])) == [
        {"id": 1, "name": "ANN", "cents": 100},
        {"id": 2, "name": "BOB", "cents": 200},
    ]


PAID = f"""
name: paid
from:
  ORDERS: {{schema: "{SCHEMA}", startingOffsets: earliest}}
  ORDERS.paid: {{schema: "id long, paid timestamp", startingOffsets: earliest}}
sql: |
  SELECT o.id, o.cents, p.paid
  FROM (SELECT DISTINCT id, cents, at FROM VIEW WATERMARK at DELAY OF INTERVAL 1 MINUTE) o
  JOIN (SELECT * FROM VIEW_paid WATERMARK paid DELAY OF INTERVAL 1 MINUTE) p
  ON o.id = p.id AND p.paid BETWEEN o.at AND o.at + INTERVAL 5 MINUTES
to: {{topic: OUT}}
"""


def test_doubled_records_are_dropped_and_streams_joined_within_a_time(log: Log) -> None:
    def pay(number: int, at: str) -> None:
        log.append(f"{log.orders}.paid", [{"id": number, "paid": at}])

    log.create(f"{log.orders}.paid")
    log.append(log.orders, [order(1), order(2), order(1), order(3)])
    pay(1, "2026-03-01T09:01:00Z")
    pay(3, "2026-03-01T09:30:00Z")  # too late to belong to the order
    log.run(PAID)
    log.append(log.orders, [order(2), order(1), order(3)])  # sent again, as senders do
    log.append(log.orders, [order(9, "2026-03-01T10:00:00Z")])  # time goes on: others are known
    pay(2, "2026-03-01T09:02:00Z")
    pay(9, "2026-03-01T10:30:00Z")
    log.run(PAID)
    paid = [(row["id"], row["cents"]) for row in log.datas(log.out)]
    assert sorted(paid) == [(1, 100), (2, 200)]


# Loss and bad data


def test_loss_is_a_view_and_shows_in_the_progress(log: Log) -> None:
    log.create(log.orders, cap_records=4)
    log.append(log.orders, [order(n) for n in range(1, 11)])
    batches: list[BatchProgress] = []
    outcome = log.run(
        f"""
        from: {{ORDERS: {{schema: "{SCHEMA}", startingOffsets: earliest}}}}
        sql: |
          SELECT 'order' AS what, _seq AS first, _seq AS last FROM VIEW
          UNION ALL SELECT reason, seq, last_seq FROM VIEW__loss
        to: {{topic: OUT}}
        """,
        batches=batches,
    )
    rows = sorted((row["first"], row["last"], row["what"]) for row in log.datas(log.out))
    assert rows == [(1, 6, "cap"), *((n, n, "order") for n in range(7, 11))]
    assert batches[0].lost == {log.orders: 6}
    assert f"LOST 6 of {log.orders}" in batches[0].line()
    assert (outcome.rows, outcome.lost) == (4, 6)


BAD = f"""
from: {{ORDERS: {{schema: "{SCHEMA}", startingOffsets: earliest, onBadData: MANNER}}}}
sql: SELECT _seq AS seq FROM VIEWS
to: {{topic: OUT}}
"""


@pytest.fixture
def bad_log(log: Log) -> Log:
    good = [order(1), {"cents": None}, {"id": 5, "more": "fields"}]
    bad = [{"id": "five"}, "text", None, [order(1)], {"at": "noon"}]
    log.append(log.orders, [*good, *bad])
    return log


def test_data_that_does_not_fit_fails_the_flow_and_names_the_seq(bad_log: Log) -> None:
    with pytest.raises(FlowFailed) as failed:
        bad_log.run(BAD.replace("MANNER", "fail").replace("VIEWS", "VIEW"))
    assert f"the record of topic {bad_log.orders} with seq 4 does not fit" in str(failed.value)
    assert "set onBadData to skip or rows" in str(failed.value)
    found = state.find("flow")
    assert found.status == "failed"
    assert found.error is not None
    assert "with seq 4" in found.error


def test_data_that_does_not_fit_can_be_left_out_and_is_counted(bad_log: Log) -> None:
    batches: list[BatchProgress] = []
    bad_log.run(BAD.replace("MANNER", "skip").replace("VIEWS", "VIEW"), batches=batches)
    assert bad_log.datas(bad_log.out) == [{"seq": 1}, {"seq": 2}, {"seq": 3}]
    assert (batches[0].rows, batches[0].bad) == (8, 5)


def test_data_that_does_not_fit_can_be_rows_of_its_own_view(bad_log: Log) -> None:
    bad_log.run(BAD.replace("MANNER", "rows").replace("VIEWS", "VIEW__bad"))
    assert bad_log.datas(bad_log.out) == [{"seq": n} for n in range(4, 9)]


def test_numbers_that_json_has_no_word_for_do_not_fit_a_schema(log: Log) -> None:
    good = [{"price": 1.5, "list": [2.5, None], "deep": {"a": [{"b": 0.5}]}}, {"price": None}]
    bad = [
        {"price": "NaN"},
        {"price": "-Infinity"},
        {"list": [1.0, "Infinity"]},
        {"deep": {"a": [{"b": 1}, {"b": "NaN"}]}},
    ]
    log.append(log.orders, [*good, *bad])
    schema = "price double, list array<float>, deep map<string, array<struct<b: double>>>"
    batches: list[BatchProgress] = []
    log.run(
        f"""
        from: {{ORDERS: {{schema: "{schema}", startingOffsets: earliest, onBadData: rows}}}}
        sql: |
          SELECT _seq AS seq, price, false AS bad FROM VIEW
          UNION ALL SELECT _seq, NULL, true FROM VIEW__bad
        to: {{topic: OUT}}
        """,
        batches=batches,
    )
    rows = sorted((row["seq"], row["bad"]) for row in log.datas(log.out))
    assert rows == [(1, False), (2, False), (3, True), (4, True), (5, True), (6, True)]
    assert batches[0].bad == 4


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nothing FROM VIEW", "nothing"),
        ("SELECT 1 AS one", "reads none of the flow's topics"),
        ("SELECT count(*) AS n FROM VIEW", "WATERMARK at DELAY OF"),
        ("SELECT data, 1 AS more FROM VIEW", "`data` and beside it more"),
        ("SELECT _seq FROM VIEW", "no columns that could become the data"),
    ],
)
def test_a_transformation_that_cannot_work_is_explained_in_a_line(
    log: Log, sql: str, said: str
) -> None:
    with pytest.raises(FlowFailed) as failed:
        log.run(f"from: ORDERS\nsql: {sql}\nto: {{topic: OUT}}")
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


# The command


def test_a_running_flow_is_listed_and_stopped_after_its_batch(
    log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command runs here, with the session of all tests; `stop` comes from another thread."""
    log.append(log.orders, [order(n) for n in range(1, 6)])
    file = log.write(
        "name: copy\nfrom: {ORDERS: {startingOffsets: earliest}}\n"
        "sql: SELECT * FROM VIEW\nto: {topic: OUT}\ntrigger: 100 milliseconds\n"
    )
    seen: list[Any] = []

    def watch_and_stop() -> None:
        try:
            seen.append(wait_for_rows("copy", 5))
            with pytest.raises(FlowRuns):
                log.run(file.read_text())
            log.append(log.orders, [order(6)])
            seen.append(wait_for_rows("copy", 6))
        finally:
            seen.append(state.stop("copy", timeout=PATIENCE_S))

    helper = threading.Thread(target=watch_and_stop)
    helper.start()
    code = cli.run(["flow", "run", str(file)])
    helper.join(PATIENCE_S)
    assert code == 0
    assert [each.status for each in seen] == ["running", "running", "stopped"]
    assert log.datas(log.out) == [order(n) for n in range(1, 7)]
    told = capfd.readouterr().out
    assert "copy  batch 0  5 records" in told
    assert told.splitlines()[-1].startswith("copy ended: 6 records in 2 batches")

    assert cli.run(["flow", "list"]) == 0
    header, row = capfd.readouterr().out.splitlines()
    assert header.split() == ["flow", "status", "from", "->", "to", "records", "lag"]
    assert row.split() == ["copy", "stopped", log.orders, "->", "topic", log.out, "6", "0"]
    assert cli.run(["flow", "status", "copy", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["status"], shown["rows"], shown["batch"]) == ("stopped", 6, 1)
    assert cli.run(["flow", "stop", "copy"]) == 0
    assert "copy does not run: stopped" in capfd.readouterr().out
    assert cli.run(["flow", "status", "nobody"]) == 3


def wait_for_rows(name: str, rows: int) -> state.State:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.1)):
        pause.wait(0.1)
        found = next((each for each in state.find_all() if each.name == name), None)
        if found is not None and found.rows >= rows:
            return found
        if found is not None and not state.is_running(found):
            break
    raise AssertionError(f"{name} did not get there: {found}")


def test_a_bad_flow_file_exits_with_2_and_the_near_miss(
    log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    file = log.write("from: {ORDERS: {startingOffset: earliest}}\nsql: SELECT 1\nto: {topic: OUT}")
    assert cli.run(["flow", "run", str(file)]) == 2
    assert "did you mean `startingOffsets`?" in capfd.readouterr().err


def test_a_missing_topic_exits_with_3_and_its_name_and_nothing_has_run(
    log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    file = log.write("from: nowhere\nsql: SELECT * FROM nowhere\nto: {topic: OUT}\ntrigger: once")
    assert cli.run(["flow", "run", str(file)]) == 3
    assert capfd.readouterr().err == (
        'topics: topic "nowhere" does not exist; create it or write to it first\n'
    )
    assert state.find_all() == []


# Killed


KILLED = f"""
name: killed
from:
  ORDERS: {{schema: "{SCHEMA}", startingOffsets: earliest, maxRecordsPerTrigger: 20}}
sql: SELECT id FROM VIEW
to: {{table: ./lake/killed}}
trigger: 1 millisecond
"""


def test_a_killed_flow_goes_on_and_writes_every_row_of_its_table_once(log: Log) -> None:
    """A real `topics flow run` with its own Spark is killed in the middle of its batches."""
    count = 100
    log.append(log.orders, [order(n) for n in range(1, count + 1)])
    file = log.write(KILLED)
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "topics.cli", "flow", "run", str(file), "--json"]
    with subprocess.Popen(
        [*command, "--master", "local[2]", *conf],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        try:
            lines = [json.loads(driver.stdout.readline() or "{}") for _ in range(2)]
        finally:
            # Its JVM and workers are in the same session; none may finish what was begun.
            os.killpg(driver.pid, signal.SIGKILL)
        said = driver.stderr.read()
    assert [line.get("batch") for line in lines] == [0, 1], said
    assert "what it says goes to" in said
    assert "WARN" not in said, "the chatter of Spark belongs into its log"
    assert state.find("killed").status == "lost"
    table = log.folder / "lake" / "killed"
    assert len(ids_in(table)) >= 40
    log.append(log.orders, [order(count + 1)])
    log.run(file.read_text())
    assert ids_in(table) == list(range(1, count + 2))
    assert state.find("killed").status == "stopped"


def test_a_batch_that_was_cut_off_tells_when_it_is_repeated_how_far_the_flow_is_behind(
    log: Log,
) -> None:
    file = log.write(KILLED.replace("killed", "repeated"))
    log.append(log.orders, [order(n) for n in range(1, 21)])
    log.run(file.read_text())
    commits = load(file, source_options=READ_OPTIONS).checkpoint / "commits"
    for committed in commits.glob("*0*"):
        committed.unlink()
    log.append(log.orders, [order(n) for n in range(21, 51)])
    batches: list[BatchProgress] = []
    log.run(file.read_text(), batches=batches)
    lags = [(done.batch, done.lag) for done in batches]
    assert lags == [(number, {log.orders: lag}) for number, lag in enumerate((30, 10, 0))]
    assert ids_in(log.folder / "lake" / "repeated") == list(range(1, 51))


def ids_in(table: Path) -> list[int]:
    """As often as they are there."""
    ids: list[int] = DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist()
    return sorted(ids)

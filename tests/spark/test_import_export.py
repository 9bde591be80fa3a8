"""Files into topics and back, on a real Spark: every row once, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.blackbox.conftest import ServerProcess

from topics.cli import _app as cli
from topics.client.targets import Target
from topics.spark.bulk import exporting
from topics.spark.bulk.exporting import ExportTask, export_topic, plan_export
from topics.spark.bulk.importing import ImportFailed, ImportTask, InputChanged, import_files
from topics.spark.sink.writer import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


class Server:
    """Plain HTTP to the shared server."""

    def __init__(self, server: ServerProcess) -> None:
        self.url = server.url
        self._http = httpx.Client(base_url=server.url, timeout=60)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.request(method, f"/v0/topics/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def records(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            body = {"from_seq": after, "limit": 1000, "include_tags": True}
            page = self.call("POST", f"{topic}/diff", body)
            found += page["records"]
            after = page["next_from_seq"]
            if page["caught_up"]:
                return found


@pytest.fixture
def server(shared_server: ServerProcess) -> Iterator[Server]:
    made = Server(shared_server)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def small_epochs(source: Path, topic: str, server: Server) -> ImportTask:
    return ImportTask(
        str(source), topic, Target(url=server.url), epoch_bytes=12_000, unit_bytes=4000
    )


def test_an_interrupted_import_goes_on_with_the_next_epoch_and_every_row_is_there_once(
    server: Server,
    topic: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "rows"
    source.mkdir()
    for name, first in (("a", 0), ("b", 3000)):
        rows = pa.table({"n": range(first, first + 3000)})
        pq.write_table(rows, source / f"{name}.parquet", compression=None, use_dictionary=False)
    task = small_epochs(source, topic, server)
    real = BatchWriter.commit
    seen: list[int] = []

    def dies_after_the_second(writer: Any, messages: Any) -> None:  # noqa: ANN401 - Spark's
        real(writer, messages)  # the server has it, and nobody learns of that
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, "commit", dies_after_the_second)
        with pytest.raises(KeyboardInterrupt):
            import_files(spark, task, task.plan())
    done = import_files(spark, task, task.plan())
    assert done.epochs > 3
    assert done.skipped == 2
    assert [record["data"]["n"] for record in server.records(topic)] == list(range(6000))
    again = import_files(spark, task, task.plan())
    assert (again.records, again.skipped) == (0, done.epochs)
    assert len(server.records(topic)) == 6000


def test_input_that_changed_is_refused_unless_it_is_called_another_import(
    server: Server, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"n":1}\n{"n":2}\n')
    task = small_epochs(source, topic, server)
    import_files(spark, task, task.plan())
    source.write_text('{"n":1}\n{"n":2}\n{"n":3}\n')
    with pytest.raises(InputChanged, match="--name"):
        import_files(spark, task, task.plan())
    ask = ["spark", "import", str(source), topic, "--url", server.url, "--name", "second"]
    assert cli.run(ask) == 0
    assert [r["data"]["n"] for r in server.records(topic)] == [1, 2, 1, 2, 3]


def test_a_row_that_cannot_be_a_record_fails_its_epoch_and_says_where(
    server: Server, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"n":1}\n{"n":\n')
    task = small_epochs(source, topic, server)
    with pytest.raises(ImportFailed, match=r"epoch 1 of .*row 1"):
        import_files(spark, task, task.plan())
    with pytest.raises(httpx.HTTPStatusError):
        server.records(topic)  # nothing was made


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("how", ["parquet", "jsonl"])
def test_what_was_exported_and_imported_again_is_the_same(
    server: Server, topic: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"data": {"n": n, "ü": [None, 1.5]}, "tag": f"t{n % 3}", "node": "n1", "meta": {"m": n}}
        for n in range(500)
    ]
    server.call("POST", topic, {"records": [*records, {"data": None}]})
    server.call("POST", f"{topic}/delete", {"match": "t2"})
    out = tmp_path / f"out.{how}"
    assert cli.run(["spark", "export", topic, str(out), "--url", server.url, "--json"]) == 0
    ended = json.loads(capsys.readouterr().out.splitlines()[-1])["ended"]
    wanted = server.records(topic)
    assert ended["records"] == len(wanted) == 335
    assert {path.suffix for path in out.iterdir()} == {f".{how}", ".json"}
    copy = f"{topic}.copy"
    assert cli.run(["spark", "import", str(out), copy, "--url", server.url]) == 0
    assert f"335 records imported into {copy}" in capsys.readouterr().out

    def plain(record: dict[str, Any]) -> dict[str, Any]:
        return {name: record.get(name) for name in ("data", "$tag", "$node", "meta")}

    assert [plain(r) for r in server.records(copy)] == [plain(r) for r in wanted]


def test_an_export_goes_on_where_it_was_and_tells_of_losses(
    server: Server,
    topic: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.call("PUT", topic, {"cap_records": 300})
    server.call("POST", topic, {"records": [{"data": n} for n in range(400)]})
    task = ExportTask(topic, str(tmp_path / "out"), Target(url=server.url), "parquet")

    def dies(manifest: object, output: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exporting.Manifest, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            export_topic(spark, task, plan_export(task))
    first = export_topic(spark, task, plan_export(task))
    assert (first.records, first.skipped, first.last_seq) == (300, 0, 400)
    assert first.lost_runs == 1
    server.call("POST", topic, {"records": [{"data": n} for n in range(400, 450)]})
    more = export_topic(spark, task, plan_export(task))
    assert (more.records, more.last_seq) == (50, 450)
    assert export_topic(spark, task, plan_export(task)).records == 0
    rows = pq.read_table(tmp_path / "out").sort_by("seq")
    assert rows.column("seq").to_pylist() == list(range(101, 451))
    assert rows.column("data").to_pylist() == [str(n) for n in range(100, 450)]
    manifest = json.loads((tmp_path / "out" / exporting.MANIFEST).read_text())
    assert [lost for piece in manifest["pieces"] for lost in piece["lost"]] == [[1, 100, "cap"]]
    server.call("DELETE", topic)
    server.call("POST", topic, {"records": [{"data": 1}]})
    assert cli.run(["spark", "export", topic, str(tmp_path / "out"), "--url", server.url]) == 2

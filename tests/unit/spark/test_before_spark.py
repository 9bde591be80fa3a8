"""Commands look at what they were asked about before they start Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.runner import Answer, clean_environment, topics
from tests.unit.spark.lake_parts import FakeTopic

import topics as library
from topics.errors import TopicNotFound
from topics.spark.bulk import inputs
from topics.spark.errors import CannotStartSpark
from topics.spark.flows import running
from topics.spark.jobs import session as jobs
from topics.spark.lake.origin import SourceTopic
from topics.spark.lake.place import TablePath, syncing
from topics.spark.lake.table import LakeTable


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Starting it takes seconds, so nothing here may try to."""

    def started(*asked: object) -> None:
        raise AssertionError("Spark was started")

    clean_environment(monkeypatch, tmp_path / "config")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(jobs, "job_session", started)
    monkeypatch.setattr(running, "job_session", started)


def import_of(source: object) -> Answer:
    return topics("spark", "import", source, "orders", "--url", "http://127.0.0.1:1")


@pytest.mark.parametrize("name", ["absent.jsonl", "absent", "*.parquet", "a.jsonl/b.jsonl"])
def test_an_import_of_what_is_not_there_is_told_before_spark_starts(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    answer = import_of(tmp_path / name)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"topics: the input {tmp_path / name} does not exist\n"


@pytest.mark.parametrize("address", ["s3a://bucket/orders", "hdfs://name/a.parquet", "file:///a"])
def test_an_import_from_an_address_is_told_that_it_takes_a_path(address: str) -> None:
    answer = import_of(address)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        f"topics: {address} is no path: an import reads files that every machine of the job has "
        "under the same path\n"
    )


def test_an_import_of_what_may_not_be_read_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    source = tmp_path / "a.jsonl"
    source.write_text("1\n")
    monkeypatch.setattr(inputs, "open", refuse, raising=False)
    answer = import_of(source)
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == f"topics: {source} may not be read by this user\n"


def test_a_folder_that_may_not_be_looked_into_is_not_left_out_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    real, locked = os.scandir, tmp_path / "locked"
    locked.mkdir()

    def scandir(path: str) -> object:
        if str(path) == str(locked):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    answer = import_of(tmp_path)
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == f"topics: {locked} may not be read by this user\n"


def test_a_table_whose_log_is_damaged_is_told_in_a_line(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("nonsense")
    answer = import_of(tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"topics: {tmp_path} is no Delta table that can be read: ")
    assert answer.err.count("\n") == 1


# Topics


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with library.open(tmp_path / "data") as log:
        log.create("orders")
    return tmp_path / "data"


def flow_to_a_table(folder: Path, settings: str = "") -> Path:
    file = folder / "copy.yaml"
    file.write_text(
        f"from: {{absent: {{{settings}}}}}\nsql: SELECT * FROM absent\nto: {{table: ./copy}}\n"
    )
    return file


MISSING = 'topics: topic "absent" does not exist; create it or write to it first\n'


def test_a_flow_from_a_topic_that_is_not_there_is_told_before_spark_starts(
    data: Path, tmp_path: Path
) -> None:
    answer = topics("flow", "run", flow_to_a_table(tmp_path), "--dir", data)
    assert (answer.code, answer.out, answer.err) == (3, "", MISSING)


def test_a_sync_of_a_topic_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(origin: SourceTopic) -> None:
        raise TopicNotFound(origin.topic)

    monkeypatch.setattr(SourceTopic, "state", missing)
    url = "http://127.0.0.1:1"
    answer = topics("lake", "sync", "absent", tmp_path / "table", "--once", "--url", url)
    assert (answer.code, answer.out, answer.err) == (3, "", MISSING)
    assert not (tmp_path / "table").exists()


def test_an_export_of_a_topic_that_is_not_there_is_told_before_spark_starts(
    data: Path, tmp_path: Path
) -> None:
    answer = topics("spark", "export", "absent", tmp_path / "out", "--dir", data)
    assert (answer.code, answer.out, answer.err) == (3, "", MISSING)
    assert not (tmp_path / "out").exists()


def test_a_directory_that_is_not_there_is_called_that_by_flow_and_export(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    for command in (
        ("flow", "run", flow_to_a_table(tmp_path)),
        ("spark", "export", "orders", tmp_path / "out"),
    ):
        answer = topics(*command, "--dir", absent)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err == f"topics: the directory {absent} does not exist\n"


def test_an_option_of_a_flow_that_makes_no_sense_is_told_before_spark_starts(
    data: Path, tmp_path: Path
) -> None:
    answer = topics("flow", "run", flow_to_a_table(tmp_path, "retrySeconds: long"), "--dir", data)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "topics: retrySeconds takes a number of seconds; got 'long'\n"


def test_a_flow_into_a_topic_of_a_directory_is_told_before_spark_starts(
    data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "copy.yaml"
    file.write_text("from: orders\nsql: SELECT * FROM orders\nto: {topic: copy}\n")
    answer = topics("flow", "run", file, "--dir", data)
    assert (answer.code, answer.out) == (2, "")
    assert "needs a server; name one with --url" in answer.err


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def other(): ...", "has no function transform"),
        ("def transform(orders:\n  ...", "made.py cannot be run: line 1: '(' was never closed"),
    ],
)
def test_a_flow_whose_function_cannot_be_there_is_told_before_spark_starts(
    data: Path, tmp_path: Path, code: str, said: str
) -> None:
    (tmp_path / "made.py").write_text(code)
    file = tmp_path / "copy.yaml"
    file.write_text("from: orders\npython: made.py\nto: {table: ./copy}\n")
    answer = topics("flow", "run", file, "--dir", data)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_a_directory_that_a_flow_reads_and_that_has_gone_is_told_before_spark_starts(
    tmp_path: Path,
) -> None:
    begun = tmp_path / ".topics" / "flows" / "copy" / "offsets" / "0"
    begun.parent.mkdir(parents=True)
    begun.touch()  # a flow that has read before waits for a topic, but for no directory
    answer = topics("flow", "run", flow_to_a_table(tmp_path, "path: ./gone"))
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"topics: the directory {tmp_path / 'gone'} does not exist\n"


# How it ends: flow and sync agree


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic that is there, of a server that answers nothing else."""
    monkeypatch.setattr(SourceTopic, "state", FakeTopic(10).state)
    return "http://127.0.0.1:1"


def test_what_runs_already_and_what_belongs_to_another_is_refused_before_spark_starts(
    orders: str, tmp_path: Path
) -> None:
    place = TablePath.of(str(tmp_path / "table"))
    sync = ("lake", "sync", "orders", place.path, "--url", orders)
    with syncing(place):
        answer = topics(*sync)
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == f"topics: another `topics lake sync` is running on {place.path}\n"
    LakeTable.of_topic(place, "others", origin=orders)
    answer = topics(*sync)
    assert (answer.code, answer.out) == (4, "")
    assert "is the table of topic others, not of orders" in answer.err


def test_a_spark_that_does_not_start_is_the_same_refusal_for_a_flow_and_a_sync(
    orders: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: object, **also: object) -> None:
        raise CannotStartSpark("Spark did not start: no Java")

    monkeypatch.setattr(jobs, "job_session", refuse)
    monkeypatch.setattr(running, "job_session", refuse)
    file = tmp_path / "copy.yaml"
    file.write_text("from: orders\nsql: SELECT * FROM orders\nto: {table: ./copy}\n")
    for command in (
        ("flow", "run", file, "--dir", data),
        ("lake", "sync", "orders", tmp_path / "table", "--url", orders),
    ):
        answer = topics(*command)
        assert (answer.code, answer.out) == (4, "")
        assert answer.err == "topics: Spark did not start: no Java\n"
    found = topics("flow", "status", "copy")
    assert (found.code, "no Java" in found.out) == (1, True)


# Places and masters


@pytest.mark.parametrize("command", [("lake", "maintain"), ("lake", "delete", "--match", "x")])
def test_a_table_that_cannot_be_read_is_told_in_a_line(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    answer = topics(*command, file)
    assert (answer.code, answer.err.partition(";")[0]) == (
        3,
        f"topics: there is no lake table at {file}",
    )
    log = tmp_path / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("nonsense")
    answer = topics(*command, log.parent)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"topics: the log of the table {log.parent} cannot be read: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("lake", "sync", "orders", "table"),
        ("flow", "run", "flow.yaml"),
        ("spark", "audit", "data"),
        ("spark", "import", "a.jsonl", "orders"),
        ("spark", "export", "orders", "out"),
    ],
    ids=" ".join,
)
def test_a_master_that_spark_does_not_know_is_told_before_it_starts(
    command: tuple[str, ...],
) -> None:
    answer = topics(*command, "--master", "master:7077")
    assert (answer.code, answer.out) == (2, "")
    assert "'master:7077' is no master; write it like local[4] or spark://host:7077" in answer.err


def test_an_import_through_a_directory_is_told_which_one(data: Path, tmp_path: Path) -> None:
    answer = topics("spark", "import", tmp_path, "orders", "--dir", data)
    assert answer.code == 2
    assert f"this job writes through a server, and {data} is a directory" in answer.err


def test_an_export_into_a_file_is_told_that_it_takes_a_directory(
    data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    answer = topics("spark", "export", "orders", file, "--dir", data)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"topics: {file} is a file; an export writes a directory\n"


def test_a_flow_whose_file_is_not_there_is_not_found(tmp_path: Path) -> None:
    answer = topics("flow", "run", tmp_path / "nowhere.yaml")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"topics: the file {tmp_path / 'nowhere.yaml'} does not exist\n"

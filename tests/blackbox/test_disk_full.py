"""A disk that is really full: writes are refused, reads go on, and room heals everything.

The disk is a tmpfs of a few MiB, which takes root to mount, as in the container where the tests
run. Without that the test fails and says so; it has no other way to be sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.api_client import Api, datas, eventually, good, refused
from tests.blackbox.conftest import Connect, ServerFactory
from tests.blackbox.test_torture import survived

import topics
from topics.errors import LogFull
from topics.torture.weather import SMALL_DISK_MIB, Ballast, small_disk

BIG = "x" * 200_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as where:
        yield where


def write_until_refused(api: Api, topic: str) -> tuple[list[int], int]:
    """Seqs that were acknowledged, and the status that ended it."""
    acked: list[int] = []
    for _ in range(SMALL_DISK_MIB * 1_000_000 // len(BIG) * 2):
        answer = api.post(f"/v0/topics/{topic}", {"records": [{"data": BIG}]})
        if answer.is_error:
            error = refused(answer)
            assert error.code == "internal"
            assert error.detail == {"reason": "disk_full", "shard": 0, "needed_bytes": 1 << 20}
            return acked, answer.status_code
        acked += answer.json()["seqs"]
    raise AssertionError("the disk is larger than it should be")


def test_pr08_a_full_disk_refuses_writes_keeps_reading_and_heals(
    server_factory: ServerFactory, connect: Connect, disk: Path
) -> None:
    ballast = Ballast(disk)
    env = {"TOPICS_WAL_SHARDS": "1"}
    small = Path(__file__).with_name("small_log_files")
    server = server_factory(env=env | {"PYTHONPATH": str(small)}, data_dir=disk / "data")
    api = connect(server)
    api.make("t", durability="fsync")
    assert api.write("t", "first")["first_seq"] == 1
    api.make("old", durability="fsync")
    api.make("jobs", type="queue", durability="fsync")
    api.write("jobs", "job")
    ballast.fill()
    acked, status = write_until_refused(api, "t")
    assert status == 500
    head = api.state("t")["head_seq"]
    assert head == len(acked) + 1, "a refused write leaves no seq"
    with topics.open(server.url) as log:
        for _ in range(5):
            with pytest.raises(LogFull, match="1,048,576 bytes"):
                log.append("t", {"data": BIG})
        assert log.delete("t", before_seq=2).deleted == 1, "what makes room is taken"
        assert log.drop("old").deleted
        worker = log.queue("jobs", node="w")
        assert worker.ack(worker.claim(1)).acked == 1
    assert server.stderr.count("the disk is full") == 1, "one line for all who were refused"
    assert "Traceback" not in server.stderr
    ready = api.get("/v0/ready")
    assert refused(ready).detail is not None
    assert ready.status_code == 503
    assert ready.json()["error"]["detail"]["reason"] == "disk_full"
    page = api.diff("t", limit=1)
    assert datas(page) == [BIG], "what is there can be read"
    ballast.drop()
    eventually(lambda: api.get("/v0/ready"), lambda found: found.status_code == 200)
    again = api.write("t", "again")
    assert again["first_seq"] == head + 1, "seqs of a refused write go to the next one"
    server.restart()
    api = connect(server)
    check(api, [*acked, head + 1])
    assert api.get("/v0/topics/old").status_code == 404
    assert api.state("jobs")["count"] == 0, "the ack is as durable as ever"


def test_pr08_a_delete_makes_room_on_a_full_disk_without_further_help(
    server_factory: ServerFactory, connect: Connect, disk: Path
) -> None:
    small = Path(__file__).with_name("small_log_files")
    env = {"TOPICS_WAL_SHARDS": "1", "PYTHONPATH": str(small)}
    server = server_factory(env=env, data_dir=disk / "data")
    api = connect(server)
    api.make("t", durability="fsync")
    write_until_refused(api, "t")
    head = api.state("t")["head_seq"]
    with topics.open(server.url) as log:
        assert log.delete("t", before_seq=head).deleted == head - 1
    eventually(lambda: api.get("/v0/ready"), lambda found: found.status_code == 200)
    assert api.write("t", "again")["first_seq"] == head + 1


def test_an_empty_directory_takes_little_of_the_disk(server_factory: ServerFactory) -> None:
    server = server_factory(env={"TOPICS_WAL_SHARDS": "4"})
    taken = sum(file.stat().st_blocks * 512 for file in server.data_dir.rglob("*"))
    assert taken < 5 << 20, "a MiB for each shard"


def check(api: Api, expected: list[int]) -> None:
    found: list[int] = []
    cursor = 0
    while True:
        page: dict[str, Any] = api.diff("t", from_seq=cursor, limit=1000)
        assert page["tombstone"] is None
        found += [record["$seq"] for record in page["records"]]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert found == expected
    audit = good(api.get("/v0/topics/t/audit"))
    assert audit["lost_crash"] == audit["lost_cap"] == 0


@pytest.mark.timeout(600)
def test_servers_that_run_out_of_space_and_are_killed_lose_nothing(tmp_path: Path) -> None:
    figures = survived(tmp_path, "--disk-full", cycles=4)
    assert figures["ends"]["full disk"] >= 1

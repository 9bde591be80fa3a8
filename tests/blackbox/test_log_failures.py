"""A server whose disk fails: what writers, readers and probes are told, and how it goes on.

The disk fails through a module on the server's path (`failing_disk`): while a file with an errno
name exists, writes or syncs of the log end with that error.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.blackbox.api_client import Api, Refusal, eventually, good, refused
from tests.blackbox.conftest import Connect, ServerFactory, ServerProcess

FAILING_DISK = Path(__file__).parent / "failing_disk"


class Disk:
    """A switch for one server's disk."""

    def __init__(self, switch: Path) -> None:
        self._switch = switch

    def fail(self, call: str, number: int) -> None:
        waiting = self._switch.with_suffix(".tmp")
        waiting.write_text(f"{call} {number}")
        waiting.rename(self._switch)

    def heal(self) -> None:
        self._switch.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "failure")


@pytest.fixture
def failing(server_factory: ServerFactory, tmp_path: Path) -> ServerProcess:
    return server_factory(
        env={
            "PYTHONPATH": str(FAILING_DISK),
            "FAILING_DISK": str(tmp_path / "failure"),
            "TOPICS_WAL_SHARDS": "1",
        }
    )


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def api(request: pytest.FixtureRequest, failing: ServerProcess, connect: Connect) -> Iterator[Api]:
    return connect(failing, version=request.param)  # type: ignore[return-value]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_full_disk_refuses_writes_keeps_reads_and_heals(
    api: Api, disk: Disk, failing: ServerProcess, durability: str
) -> None:
    api.make("t", durability=durability)
    api.write("t", 1)
    disk.fail("pwrite", errno.ENOSPC)
    answer = api.post("/v0/topics/t", {"records": [{"data": 2}]})
    status, code, _ = refused(answer)
    assert (status, code) == (500, "internal")
    assert str(failing.root) not in answer.text
    assert [record["data"] for record in api.diff("t")["records"]] == [1]
    ready = refused(api.get("/v0/ready"))
    assert ready == Refusal(503, "not_ready", {"reason": "disk_full"})
    assert api.get("/v0/health").status_code == 200
    assert api.metrics()["wal"]["read_only"] is True
    assert "topics_wal_read_only 1\n" in api.get("/v0/metrics").text
    disk.heal()
    eventually(lambda: api.get("/v0/ready").status_code, lambda status: status == 200)
    assert good(api.post("/v0/topics/t", {"records": [{"data": 2}]}))["first_seq"] == 2
    assert [record["data"] for record in api.diff("t")["records"]] == [1, 2]


def test_a_failed_sync_ends_writing_for_good_and_loses_no_ack(
    api: Api, disk: Disk, failing: ServerProcess, connect: Connect
) -> None:
    api.make("t", durability="fsync")
    api.write("t", 1)
    disk.fail("fdatasync", errno.EIO)
    status, code, _ = refused(api.post("/v0/topics/t", {"records": [{"data": 2}]}))
    assert (status, code) == (500, "internal")
    disk.heal()
    # What the kernel dropped it will not write later, whatever it says: nothing is tried again.
    status, code, _ = refused(api.post("/v0/topics/t", {"records": [{"data": 3}]}))
    assert (status, code) == (500, "internal")
    assert refused(api.get("/v0/ready")) == Refusal(503, "not_ready", {"reason": "wal_failed"})
    assert [record["data"] for record in api.diff("t")["records"]] == [1]
    failing.restart()
    again = connect(failing, version=api.version)
    found = [record["data"] for record in again.diff("t")["records"]]
    assert found[0] == 1
    assert 3 not in found
    again.write("t", 4)


def test_other_calls_that_need_the_log_are_refused_alike(api: Api, disk: Disk) -> None:
    api.make("t")
    api.write("t", 1)
    api.make("q", type="queue")
    api.write("q", 1)
    (job,) = good(api.post("/v0/topics/q/claim", {"node": "w", "lease_ms": 600_000}))["claimed"]
    disk.fail("pwrite", errno.EIO)
    for answer in (
        api.put("/v0/topics/new", {}),
        api.post("/v0/topics/t/delete", {"before_seq": 2}),
        api.post("/v0/topics/q/ack", {"node": "w", "seqs": [job["$seq"]]}),
        api.put("/v0/topics/t/cursors/c", {"seq": 1}),
        api.put("/v0/routers/r", {"source": "t", "dest": "other"}),
    ):
        status, code, _ = refused(answer)
        assert (status, code) == (500, "internal"), answer.text
    assert api.state("t")["count"] == 1
    assert refused(api.get("/v0/topics/new")).code == "topic_not_found"
    assert refused(api.get("/v0/routers/r")).code == "router_not_found"

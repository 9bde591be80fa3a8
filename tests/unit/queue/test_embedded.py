"""Queues and routers of a log in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import topics
from topics.embedded import Log
from topics.errors import InvalidRequest, NotAQueue, ReadOnly, TopicNotFound


@pytest.fixture(params=["memory", "directory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    with topics.open(None if request.param == "memory" else tmp_path / "data") as opened:
        yield opened


def test_a_worker_claims_acks_gives_back_and_prolongs(log: Log) -> None:
    log.create("jobs", type="queue", claim_jitter_ms=5000)
    log.append("jobs", [{"data": {"n": n}} for n in range(4)])
    jobs = log.queue("jobs", node="w")
    first, second, third = jobs.claim(3)
    assert [job.data["n"] for job in (first, second, third)] == [0, 1, 2]
    assert jobs.ack([first, 99]).to_dict() == {
        "topic": "jobs",
        "acked": 1,
        "skipped": [99],
        "ready": 1,
        "in_flight": 2,
    }
    assert jobs.nack([second]).nacked == 1
    assert jobs.extend([third], lease_ms=60_000).deadlines[3] >= third.deadline_ms
    assert log.queue("jobs", node="x").ack([third.seq]).skipped == [3]
    assert jobs.stats().to_dict() == {"ready": 2, "in_flight": 1, "dead_lettered": 0}
    (again,) = jobs.claim()
    assert (again.seq, again.deliveries) == (2, 2)
    assert jobs.ack([second]).skipped == [2], "the lease it names is over"


def test_dead_letters_come_back_on_request(log: Log) -> None:
    log.create("jobs", type="queue", max_deliveries=1, dead_letter="letters")
    log.append("jobs", {"data": 1})
    jobs = log.queue("jobs")
    jobs.nack(jobs.claim())
    assert jobs.claim() == []
    assert jobs.stats().dead_lettered == 1
    assert jobs.redrive().moved == 1
    assert [job.data for job in jobs.claim()] == [1]


def test_a_router_forwards_before_its_destination_is_read(log: Log) -> None:
    made = log.route("r", source="a", dest="b", match="x*")
    assert (made.filter, made.guarantee, made.lag) == (("tag", "Glob", "x*"), "at_least_once", 0)
    log.append("a", [{"data": 1, "tag": "x1"}, {"data": 2}])
    assert [record.data for record in log.read("b").records] == [1]
    assert [router.forwarded_total for router in log.routers()] == [1]
    assert log.drop_router("r")
    assert not log.drop_router("r")
    log.append("a", {"data": 3, "tag": "x1"})
    assert log.read("b").head_seq == 1


def test_upkeep_forwards_what_nobody_reads(log: Log) -> None:
    log.route("r", source="a", dest="b")
    log.append("a", [{"data": n} for n in range(5)])
    log.maintain()
    (router,) = log.routers()
    assert (router.lag, router.forwarded_total) == (0, 5)


def test_calls_that_make_no_sense_are_refused(log: Log) -> None:
    log.create("log")
    with pytest.raises(NotAQueue):
        log.queue("log").claim()
    with pytest.raises(TopicNotFound):
        log.queue("absent").stats()
    log.create("jobs", type="queue")
    jobs = log.queue("jobs")
    for call in (
        lambda: jobs.claim(-1),
        lambda: jobs.nack([], delay_ms=-1),
        lambda: jobs.extend([], lease_ms=-1),
        lambda: log.queue("jobs", node="").claim(),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_a_read_only_log_shows_queues_and_routers_but_changes_none(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.create("jobs", type="queue", leases_durable=True)
        log.append("jobs", [{"data": 1}, {"data": 2}])
        log.route("r", source="jobs", dest="copy")
        log.append("jobs", {"data": 3})
        assert log.state("copy").count == 1
        log.queue("jobs").claim()
        log.sync()
        with topics.open(tmp_path / "data", read_only=True) as view:
            assert view.queue("jobs").stats().to_dict() == {
                "ready": 2,
                "in_flight": 1,
                "dead_lettered": 0,
            }
            assert len(view.routers()) == 1
            assert [record.data for record in view.read("copy").records] == [3]
            with pytest.raises(ReadOnly):
                view.queue("jobs").claim()
            with pytest.raises(ReadOnly):
                view.route("s", source="jobs", dest="other")

import logging
import subprocess
import sys

import pytest

from topics.client._call import new_key
from topics.client._working import (
    Leases,
    Reject,
    WorkSettings,
    burial,
    dead_letter,
    report,
    retry_delay_ms,
    worker_name,
)
from topics.errors import InvalidRequest
from topics.values import Job


def job(
    seq: int = 1, *, deliveries: int = 1, meta: bytes | None = None, lease_id: int = 255
) -> Job:
    return Job(seq, lease_id, 0, 0, deliveries, b'{"a":1}', "tag", meta)


def test_a_lease_is_due_after_a_third_of_its_time_whatever_its_deadline_says() -> None:
    leases = Leases(3000)
    leases.hold(job(1), 10.0)
    leases.hold(job(2), 10.5)
    assert [held.seq for held in leases.due(10.9)] == []
    assert [held.seq for held in leases.due(11.0)] == [1]
    assert [held.seq for held in leases.due(11.5)] == [1, 2]
    assert leases.look_every < 1.0 / 2  # several looks before it is due


def test_a_renewed_lease_runs_anew_and_a_lost_one_is_let_go() -> None:
    leases = Leases(3000)
    for seq in (1, 2, 3):
        leases.hold(job(seq), 0.0)
    due = leases.due(1.0)
    leases.release(job(3))  # finished while the renewal was on its way
    leases.renewed(due, {2, 3}, 1.0)
    assert leases.lost == 1
    assert leases.due(1.9) == []
    assert [held.seq for held in leases.due(2.0)] == [1]


def test_a_job_whose_lease_is_lost_takes_its_handler_until_that_is_done() -> None:
    leases = Leases(3000)
    leases.hold(job(), 0.0)
    leases.renewed([job()], {1}, 1.0)
    assert len(leases) == 1
    leases.release(job())
    assert len(leases) == 0


def test_a_job_that_came_again_keeps_its_lease_when_the_first_handler_is_done() -> None:
    leases = Leases(3000)
    first, again = job(lease_id=1), job(lease_id=2)
    leases.hold(first, 0.0)
    leases.hold(again, 5.0)
    leases.renewed([first], {1}, 5.5)  # asked before, answered now
    leases.release(first)
    assert (len(leases), leases.lost) == (1, 0)
    assert leases.due(6.0) == [again]


def test_a_failed_job_waits_longer_each_time_up_to_a_minute() -> None:
    delays = [retry_delay_ms(job(deliveries=n), 1000) for n in (1, 2, 3, 4, 100)]
    assert delays == [1000, 2000, 4000, 8000, 60_000]
    assert retry_delay_ms(job(), 0) == 0


@pytest.mark.parametrize("meta", [None, b"[1]", b'{"k":"v"}'])
def test_a_buried_job_is_signed_like_a_dead_letter_of_the_queue(meta: bytes | None) -> None:
    error = Reject("no such picture")
    record, key = burial("q", job(7, deliveries=2, meta=meta), error, "w1")
    signed = record["meta"]
    assert signed["$dead_letter_from"] == "q"
    assert signed["$dead_letter_deliveries"] == "2"
    assert signed["$dead_letter_src_seq"] == "7"
    assert signed["$dead_letter_error_type"] == "Reject"
    assert signed["$dead_letter_error"] == "no such picture"
    assert signed["$dead_letter_worker"] == "w1"
    assert int(signed["$dead_letter_failed_at"]) > 0
    assert (signed.get("k") == "v") is (meta == b'{"k":"v"}')
    assert (record["data"], record["tag"]) == (b'{"a":1}', "tag")
    assert key == burial("q", job(7), error, "w1")[1]
    assert key != burial("q", job(8), error, "w1")[1]


def test_a_queue_is_not_its_own_dead_letter() -> None:
    assert dead_letter("q", {"dead_letter": "d"}) == "d"
    assert dead_letter("q", {"dead_letter": "q"}) is None
    assert dead_letter("q", {"dead_letter": None}) is None


def test_workers_have_names_of_their_own() -> None:
    names = {worker_name() for _ in range(100)}
    assert len(names) == 100
    assert all(0 < len(name.encode()) <= 128 for name in names)


def test_options_that_make_no_sense_are_refused() -> None:
    for options in (
        WorkSettings(concurrency=0),
        WorkSettings(retry_delay_ms=-1),
        WorkSettings(idle_s=0),
    ):
        with pytest.raises(InvalidRequest):
            options.checked()


def test_keys_never_come_twice_not_even_in_a_child() -> None:
    assert len({new_key() for _ in range(1000)}) == 1000
    code = (
        "import os\n"
        "from topics.client._call import new_key\n"
        "print(new_key(), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(new_key(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(new_key(), flush=True)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    parent, child, parent_again = ran.stdout.split()
    assert parent.split("-")[0] == parent_again.split("-")[0]
    assert child.split("-")[0] != parent.split("-")[0]


def failed() -> ValueError:
    try:
        raise ValueError("no such address")
    except ValueError as error:
        return error


def test_the_exception_of_a_handler_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report("mails", "w1", job(7, deliveries=2), failed(), None)
    (line,) = caplog.records
    assert (line.name, line.levelno) == ("topics.worker", logging.WARNING)
    assert "worker w1: delivery 2 of job 7 of mails failed" in line.getMessage()
    assert "Traceback" in caplog.text
    assert "no such address" in caplog.text


def test_a_rejected_job_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    report("mails", "w1", job(7), Reject("not an address"), None)
    assert "not an address" in caplog.text
    assert "Traceback" not in caplog.text


def test_on_error_hears_of_a_failure_instead_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[BaseException] = []
    error = failed()
    report("mails", "w1", job(7), error, lambda _, told: heard.append(told))
    assert heard == [error]
    assert caplog.records == []


def test_an_on_error_that_fails_is_logged_and_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_error(_: Job, __: BaseException) -> None:
        raise KeyError("reporter")

    report("mails", "w1", job(7), failed(), on_error)
    assert "on_error failed for job 7 of mails" in caplog.text
    assert "KeyError" in caplog.text

"""Stories that need a history which is hard to come by: told of a log that only pretends."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from tests.unit.cli.runner import topics

from topics.cli import _stories, queue
from topics.cli._types import setting_defaults
from topics.embedded.view import View
from topics.values import (
    Audit,
    CursorState,
    Gap,
    Hole,
    Holes,
    Page,
    QueueCounts,
    Record,
    RouterState,
    Tombstone,
    TopicState,
    TopicSummary,
)

DEAD_LETTER = b'{"$dead_letter_from":"orders"}'


class PretendedLog:
    """Gives the same answers to everybody."""

    def __init__(self, *, ledger: dict[str, Any] | None = None, **changes: Any) -> None:  # noqa: ANN401
        given: dict[str, Any] = {"count": 4, "bytes": 4, "queue": None, "config": {}, **changes}
        self.config = {**setting_defaults(), **given["config"]}
        self.counts: QueueCounts | None = given["queue"]
        self.count, self.bytes = given["count"], given["bytes"]
        self.ledger = {"written": 10, "live": 4, "deleted": 6, **(ledger or {})}
        self.routers_there: list[RouterState] = given.get("routers", [])
        self.cursors_there: list[CursorState] = given.get("cursors", [])
        self.kind = given.get("kind")
        self.lost: Tombstone | None = None
        self.next = Record(9, given.get("ts", 5000), None, None, b"1", given.get("meta"))
        self.records = [self.next]

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        kind: Literal["log", "queue"] = "log" if self.counts is None else "queue"
        return TopicState(
            topic,
            kind,
            10,
            5,
            self.count,
            self.bytes,
            self.config,
            0,
            7000,
            None,
            1,
            0,
            self.counts,
        )

    def audit(self, topic: str) -> Audit:
        terms = dict.fromkeys(("skipped", "source_trim", "lost_cap", "lost_ttl", "lost_crash"), 0)
        return Audit(topic, 1, 10, 5, 1, **{**terms, **self.ledger})

    def cursors(self, topic: str) -> list[CursorState]:
        return self.cursors_there

    def cursor(self, topic: str, name: str) -> CursorState:
        return self.cursors_there[0]

    def routers(self, *, prefix: str = "") -> list[RouterState]:
        return self.routers_there

    def read(self, topic: str, **options: Any) -> Page:  # noqa: ANN401 - whatever is asked
        return Page(topic, self.records, 9, 10, 5, True, self.lost)

    def topics(self, *, prefix: str = "") -> list[TopicSummary]:
        return [TopicSummary("dead", 9, 9, 1, 1, False, 0)]

    def holes(self, topic: str, *, from_seq: int, to_seq: int) -> Holes:
        runs = [] if self.kind is None else [Hole(2, 4, self.kind)]
        return Holes(topic, 1, 0, runs, to_seq + 1, 1)


def told(log: PretendedLog, subject: str = "orders") -> tuple[str, str]:
    """All that is said, and the command that is advised."""
    pretended: Any = log
    topic, mark, seq = subject.partition("#")
    story = (
        _stories.of_seq(pretended, topic, int(seq)) if mark else _stories.of_topic(pretended, topic)
    )
    return " ".join(map(str, story.findings)), story.command


def test_a_gap_outweighs_everything_else() -> None:
    gap = {"gaps": [Gap(2, 4, "cap", "crash")], "lost_crash": 3, "lost_cap": 3, "deleted": 0}
    words, command = told(PretendedLog(ledger=gap, config={"cap_records": 4}))
    assert "Seq 2 to 4 is missing: lost in a power cut. (before 1970-01-01T00:00:05.000Z)" in words
    assert "3 records made room for newer ones, as its cap (4 records) asks for." in words
    assert command == "topics explain 'orders#2'"


def test_a_volatile_topic_tells_of_what_a_restart_dropped() -> None:
    words, command = told(PretendedLog(ledger={"lost_crash": 6, "deleted": 0}))
    assert words == "At most 6 records were lost when the process died."
    assert command == ""


def test_expired_records_are_told_with_their_time_to_live() -> None:
    words, command = told(
        PretendedLog(ledger={"lost_ttl": 6, "deleted": 0}, config={"ttl_ms": 60_000})
    )
    assert "6 records expired, as its TTL (1m 0s) asks for." in words
    assert command == "topics cursor ls orders"


def test_times_of_a_wrong_clock_are_told_with_what_they_mean() -> None:
    words, _ = told(PretendedLog(ts=4_000_000_000_000))
    assert "in the future: a clock was wrong." in words


def test_a_cap_that_was_lifted_is_not_blamed_with_numbers() -> None:
    words, _ = told(PretendedLog(ledger={"lost_cap": 6, "deleted": 0}))
    assert "(since lifted)" in words


def test_a_ledger_that_does_not_add_up_is_a_bug() -> None:
    words, command = told(PretendedLog(ledger={"deleted": 0}))
    assert "does not add up" in words
    assert command == "topics audit orders --json"


@pytest.mark.parametrize("cap", [{"cap_records": 4}, {"cap_bytes": 4}])
def test_a_full_topic_says_that_it_refuses_writes(cap: dict[str, int]) -> None:
    words, command = told(PretendedLog(config={"discard": "reject", **cap}))
    assert "refuses writes rather than evict" in words
    assert command == "topics delete orders --before SEQ"
    assert told(PretendedLog(config={"discard": "reject", "cap_records": 5}))[1] == ""


def test_a_router_that_lags_behind_is_named() -> None:
    router = RouterState("in", "src", "orders", True, True, None, False, "at_least_once", 0, 12)
    words, command = told(PretendedLog(routers=[router]))
    assert "Router in has yet to copy 12 records of src." in words
    assert command == "topics router get in"


def test_a_name_cannot_add_to_the_command_that_is_advised() -> None:
    name = "in; reboot"
    router = RouterState(name, "src", "orders", True, True, None, False, "at_least_once", 0, 12)
    _, command = told(PretendedLog(routers=[router]))
    assert command == "topics router get 'in; reboot'"


def test_a_busy_queue_counts_its_jobs_and_those_given_up() -> None:
    given: dict[str, Any] = {"queue": QueueCounts(1, 2, 7), "config": {"dead_letter": "dead"}}
    log = PretendedLog(**given, meta=DEAD_LETTER)
    log.records *= 3
    words, command = told(log)
    assert "1 job is ready, 2 at work, 1 held back." in words
    assert "3 jobs failed too often: dead holds them." in words
    assert command == "topics queue dead orders"


def test_dead_letters_are_told_after_a_restart_and_counted_only_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {"queue": QueueCounts(1, 2, 0), "config": {"dead_letter": "dead"}}
    log = PretendedLog(**given, meta=DEAD_LETTER)
    assert "1 job failed too often: dead holds it. (since 1970-01-01T00:00:05" in told(log)[0]
    log.records *= 3
    monkeypatch.setattr(queue, "MOST_COUNTED", 2)
    assert "2 jobs or more failed too often: dead holds them." in told(log)[0]


def test_dead_letters_that_were_put_back_are_not_looked_for() -> None:
    words, command = told(PretendedLog(queue=QueueCounts(1, 2, 7), config={"dead_letter": "dead"}))
    assert "failed too often" not in words
    assert command == "topics queue stats orders"


def test_a_slow_cursor_is_named_before_an_eviction() -> None:
    cursor = CursorState("orders", "billing", 2, 100, 10, 8, 8, 61.0, False)
    words, command = told(PretendedLog(cursors=[cursor], ledger={"lost_cap": 6, "deleted": 0}))
    assert "Cursor billing is 8 records (1m 1s) behind." in words
    assert command == "topics explain orders/billing"


def test_a_jump_in_seqs_is_no_loss_and_no_lag() -> None:
    words, _ = told(PretendedLog(ledger={"skipped": 2095}))
    assert "Its seqs jump: 2095 seqs were set aside when the process died" in words
    cursor = CursorState("orders", "billing", 2, 100, 10, 0, 8, 0.0, False)
    pretended: Any = PretendedLog(cursors=[cursor])
    words = " ".join(map(str, _stories.of_cursor(pretended, "orders", "billing").findings))
    assert (
        "The head is 8 seqs away; 8 of these seqs hold no record any more, or never did." in words
    )


def test_a_story_of_one_counts_one() -> None:
    words, _ = told(PretendedLog(ledger={"skipped": 1, "lost_crash": 1, "deleted": 5}))
    assert "1 seq was set aside when the process died and never given to a record." in words
    assert "At most 1 record was lost when the process died." in words
    words, _ = told(PretendedLog(queue=QueueCounts(1, 0, 0)), "orders#9")
    assert "It has 1 byte of data." in words
    assert "1 job is ready, 0 at work." in words
    cursor = CursorState("orders", "billing", 9, 100, 10, 0, 1, 0.0, False)
    pretended: Any = PretendedLog(cursors=[cursor])
    pretended.lost = Tombstone(9, 9, "cap", 10, 10)
    words = " ".join(map(str, _stories.of_cursor(pretended, "orders", "billing").findings))
    assert "Its next read begins with a loss: seq 9 is gone" in words
    assert "The head is 1 seq away; 1 of these seqs holds no record any more" in words


def test_a_dead_letter_names_its_job_and_what_the_job_failed_with() -> None:
    meta = (
        b'{"$dead_letter_from":"mails","$dead_letter_deliveries":"3","$dead_letter_src_seq":"7",'
        b'"$dead_letter_worker":"w-1","$dead_letter_failed_at":"5","$dead_letter_error_type":'
        b'"ValueError","$dead_letter_error":"bad"}'
    )
    words, advised = told(PretendedLog(meta=meta), "mails.dead#9")
    assert "It is the dead letter of job 7 of mails, which was handed out 3 times" in words
    assert "its last error was ValueError: bad (worker w-1)" in words
    assert advised == "topics queue redrive mails --seqs 9"
    words, _ = told(PretendedLog(meta=DEAD_LETTER), "mails.dead#9")
    assert "job ? of orders, which was handed out too often." in words
    words, _ = told(PretendedLog(meta=b"[1]"), "mails.dead#9")
    assert "dead letter" not in words


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("cap", "topics cursor ls orders"),
        ("ttl", "topics cursor ls orders"),
        ("crash", "topics audit orders"),
        ("skipped", "topics audit orders"),
        ("source_trim", "topics router ls"),
    ],
)
def test_every_way_to_lose_a_record_has_its_advice(kind: str, command: str) -> None:
    words, advised = told(PretendedLog(kind=kind), "orders#3")
    assert "Seq 2 to 4 is gone for the same reason." in words
    written = "It was written no later than seq 9, the next record. (written 1970-01-01T00:00:05"
    assert (written in words) == (kind != "skipped")
    assert ("No record ever had this seq." in words) == (kind == "skipped")
    assert advised == command


def test_the_end_of_a_topic_that_is_gone_is_told_by_the_last_write() -> None:
    log = PretendedLog(kind="deleted")
    log.records = []
    words, _ = told(log, "orders#3")
    assert "No record follows that would tell when it was written. (last write 1970-" in words


def test_a_ledger_that_does_not_add_up_fails_the_audit(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PretendedLog(ledger={"deleted": 0})
    monkeypatch.setattr(View, "audit", lambda self, topic: log.audit(topic))
    topics("create", "orders", "--dir", tmp_path)
    broken = topics("audit", "orders", "--dir", tmp_path)
    assert (broken.code, broken.out.split()[-1]) == (1, "NO")
    log.ledger |= {"lost_crash": 6, "gaps": [Gap(2, 4, "cap", "crash")]}
    assert topics("audit", "--dir", tmp_path).code == 0
    strict = topics("audit", "--strict", "--dir", tmp_path)
    assert (strict.code, strict.out.splitlines()[-1].split()) == (1, ["orders", "2", "4", "crash"])

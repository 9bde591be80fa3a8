"""What `topics explain` tells: what happened, since when, and the one command that helps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any

from topics.cli import _output as out
from topics.cli._records import why
from topics.cli.queue import Dead, cause_of_death, dead_letters, records_after
from topics.core.ages import AHEAD_MS
from topics.values import Audit, CursorState, Hole, Record, TopicState
from topics.wire import letters

if TYPE_CHECKING:
    from topics.client.interface import AnyLog

LOOK_AROUND = 4_999
"""How far to each side of a dead seq its run is looked for: one answer holds 10 000 runs."""

VERIFY = "topics verify"
"""Advice that ends with a data directory, and not with options that name a log."""

_KINDS = {
    "deleted": "deleted on purpose",
    "cap": "evicted, because the topic is capped",
    "ttl": "expired, because records of the topic live only so long",
    "crash": "lost in a crash or to damage on disk",
    "skipped": "never given to a record: it was reserved when the process died",
    "source_trim": "lost in the source before it was copied",
}


@dataclass(frozen=True)
class StoryFinding:
    """One fact of a story. The command of the fact with the highest weight is advised."""

    weight: int
    what: str
    since_ms: int | None = None
    command: str = ""
    word: str = "since"

    def __str__(self) -> str:
        if self.since_ms is None:
            return self.what
        return f"{self.what} ({self.word} {out.moment(self.since_ms)})"


@dataclass
class Story:
    """Everything about one subject."""

    subject: str
    opening: str
    findings: list[StoryFinding] = field(default_factory=list)

    def add(
        self,
        weight: int,
        what: str,
        *,
        since_ms: int | None = None,
        command: str = "",
        word: str = "since",
    ) -> None:
        self.findings.append(StoryFinding(weight, what, since_ms, command, word))

    @property
    def command(self) -> str:
        """The command of the weightiest fact; empty when no fact has one."""
        helpful = [finding for finding in self.findings if finding.command]
        return max(helpful, key=lambda finding: finding.weight).command if helpful else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "opening": self.opening,
            "findings": [
                {"what": finding.what, "since_ms": finding.since_ms} for finding in self.findings
            ],
        }


def of_topic(log: AnyLog, topic: str) -> Story:
    """A whole topic: what it lost, which consumers are behind, what is stuck."""
    state = log.state(topic, touch=False)
    ledger = log.audit(topic)
    story = Story(
        topic,
        f"{topic} is a {state.type} with {state.count} live of "
        f"{out.counted(ledger.written, 'written record')}; "
        f"its last seq is {state.head_seq}.",
    )
    _tell_losses(story, log, state, ledger)
    _tell_room(story, state)
    _tell_times(story, log, state)
    if state.queue is not None:
        _tell_jobs(story, log, state)
    for cursor in log.cursors(topic):
        _tell_cursor(story, cursor)
    for router in log.routers():
        if router.dest == topic and router.lag:
            story.add(
                3,
                f"Router {router.router} has yet to copy {out.counted(router.lag, 'record')} of "
                f"{router.source}.",
                command=f"topics router get {quote(router.router)}",
            )
    if not story.findings:
        story.add(0, "Nothing was lost, and nothing waits.")
    return story


def _tell_losses(story: Story, log: AnyLog, state: TopicState, ledger: Audit) -> None:
    topic, config = state.topic, state.config
    if ledger.lost_cap:
        limit = _limits(config)
        story.add(
            2,
            f"{out.counted(ledger.lost_cap, 'record')} made room for newer ones, as its cap "
            f"({limit}) asks for. Readers that were too slow saw a gap.",
            since_ms=state.last_write_ts,
            word="the last by a write at",
            command=f"topics cursor ls {topic}",
        )
    if ledger.lost_ttl:
        story.add(
            2,
            f"{out.counted(ledger.lost_ttl, 'record')} expired, as its TTL "
            f"({_life(config['ttl_ms'])}) asks for. Readers that were too slow saw a gap.",
            command=f"topics cursor ls {topic}",
        )
    for gap in ledger.gaps:
        after = _first_after(log, topic, gap.gap_to)
        story.add(
            9,
            f"{out.seqs(gap.gap_from, gap.gap_to).capitalize()} is missing: {_CAUSES[gap.cause]}.",
            since_ms=None if after is None else after.ts,
            word="before",
            command=f"topics explain '{topic}#{gap.gap_from}'",
        )
    if ledger.lost_crash and not ledger.gaps:
        lost = out.counted_and(ledger.lost_crash, "record", "was", "were")
        story.add(8, f"At most {lost} lost when the process died.")
    if ledger.skipped:
        skipped = out.counted_and(ledger.skipped, "seq", "was", "were")
        story.add(
            0,
            f"Its seqs jump: {skipped} set aside when the process died and never given to a "
            "record. No record is missing there.",
        )
    if not ledger.adds_up:
        story.add(10, "Its ledger does not add up: a bug.", command=f"topics audit {topic} --json")


_CAUSES = {
    "crash": "lost in a power cut",
    "repair": "given up when a damaged log was repaired",
    "source_trim": "the source lost it before it was copied",
}


def _limits(config: Any) -> str:  # noqa: ANN401 - a mapping of settings
    limits = []
    if config["cap_records"]:
        limits.append(out.counted(config["cap_records"], "record"))
    if config["cap_bytes"]:
        limits.append(out.size(config["cap_bytes"]))
    return " or ".join(limits) if limits else "since lifted"


def _life(ttl_ms: int) -> str:
    return out.span(ttl_ms / 1000) if ttl_ms else "since lifted"


def _tell_room(story: Story, state: TopicState) -> None:
    config = state.config
    if config["discard"] != "reject":
        return
    is_full = (config["cap_records"] and state.count >= config["cap_records"]) or (
        config["cap_bytes"] and state.bytes >= config["cap_bytes"]
    )
    if is_full:
        story.add(
            7,
            f"It is full ({_limits(config)}) and refuses writes rather than evict.",
            since_ms=state.last_write_ts,
            command=f"topics delete {quote(state.topic)} --before SEQ",
        )


def _tell_times(story: Story, log: AnyLog, state: TopicState) -> None:
    """A wrong clock leaves its time in a topic for good."""
    newest = next(
        iter(log.read(state.topic, after=max(0, state.head_seq - 1), limit=1).records), None
    )
    ahead_ms = 0 if newest is None else newest.ts - int(time.time() * 1000)
    if newest is not None and ahead_ms > AHEAD_MS:
        story.add(
            3,
            f"Its newest record is {out.span(ahead_ms / 1000)} in the future: a clock was wrong. "
            "Times of a topic never go back, so new records get that time too. Its TTL and "
            "idempotency keys go by how long the log has been running since, and leases of the "
            "wrong time have ended: nothing needs to be done, unless the clock is wrong now.",
            since_ms=newest.ts,
            word="it says",
        )


def _tell_jobs(story: Story, log: AnyLog, state: TopicState) -> None:
    assert state.queue is not None
    topic, counts = state.topic, state.queue
    delayed = state.count - counts.ready - counts.in_flight
    oldest = next(records_after(log, topic, 0), None)
    since = None if oldest is None else oldest.ts
    if counts.ready and not counts.in_flight:
        story.add(
            6,
            f"{_ready(counts.ready)}, and no worker holds any.",
            since_ms=since,
            command=f"topics queue peek {topic}",
        )
    elif state.count:
        story.add(
            1,
            f"{_ready(counts.ready)}, {counts.in_flight} at work, {delayed} held back.",
            since_ms=since,
            command=f"topics queue stats {topic}",
        )
    dead = Dead.of(log, state)
    if dead.oldest is not None:
        them = "it" if dead.count == 1 else "them"
        story.add(
            5,
            f"{dead.jobs} failed too often: {dead.letters_in} holds {them}.",
            since_ms=dead.oldest.ts,
            command=f"topics queue dead {topic}",
        )


def _ready(jobs: int) -> str:
    return f"{out.counted_and(jobs, 'job', 'is', 'are')} ready"


def _tell_cursor(story: Story, cursor: CursorState) -> None:
    if cursor.gap_pending:
        story.add(
            5,
            f"Cursor {cursor.cursor} waits before a gap: it was too slow for some records.",
            since_ms=cursor.updated_ts,
            command=f"topics explain {quote(f'{cursor.topic}/{cursor.cursor}')}",
        )
    elif cursor.lag_records:
        story.add(
            4,
            f"Cursor {cursor.cursor} is {out.counted(cursor.lag_records, 'record')} "
            f"({out.span(cursor.lag_seconds)}) behind.",
            since_ms=cursor.updated_ts,
            command=f"topics explain {quote(f'{cursor.topic}/{cursor.cursor}')}",
        )


def of_cursor(log: AnyLog, topic: str, name: str) -> Story:
    """A consumer: how far it is, what it missed, what it is stuck on."""
    cursor = log.cursor(topic, name)
    story = Story(
        f"{topic}/{name}",
        f"{name} has consumed {topic} up to seq {cursor.seq} of {cursor.head_seq}.",
    )
    page = log.read(topic, after=cursor.seq, limit=1)
    if page.tombstone is not None:
        lost = page.tombstone
        story.add(
            9,
            f"Its next read begins with a loss: {out.seqs(lost.gap_from, lost.gap_to)} is gone "
            f"({why(log, topic, lost)}).",
            since_ms=cursor.updated_ts,
            command=f"topics cursor set {topic} {name} {lost.gap_to}",
        )
    if page.records:
        first = page.records[0]
        idle = time.time() - cursor.updated_ts / 1000
        story.add(
            5,
            f"{out.counted(cursor.lag_records, 'record')} to go, from seq {first.seq} on; it has "
            f"not moved for {out.span(max(0.0, idle))}.",
            since_ms=first.ts,
            word="waiting since",
            command=f"topics read {topic} --after {cursor.seq} --limit 1",
        )
    elif page.tombstone is None:
        story.add(0, "It is up to date.", since_ms=cursor.updated_ts)
    if empty := cursor.lag_seqs - cursor.lag_records:
        story.add(
            0,
            f"The head is {out.counted(cursor.lag_seqs, 'seq')} away; {empty} of these seqs "
            f"{'holds' if empty == 1 else 'hold'} no record any more, or never did.",
        )
    return story


def of_seq(log: AnyLog, topic: str, seq: int) -> Story:
    """One seq: the record, or what became of it."""
    state = log.state(topic, touch=False)
    subject = f"{topic}#{seq}"
    if seq < 1 or seq > state.head_seq:
        story = Story(subject, f"{topic} has no seq {seq} yet; its last one is {state.head_seq}.")
        story.add(
            1,
            "Nothing is missing.",
            since_ms=state.last_write_ts,
            word="last write",
            command=f"topics tail {topic}",
        )
        return story
    page = log.read(topic, after=seq - 1, limit=1)
    run = _run_around(log, topic, seq, state.head_seq)
    if run is not None:
        return _of_dead(log, state, seq, run)
    if page.tombstone is not None and page.tombstone.gap_from == seq:
        return _of_damaged(topic, seq)
    return _of_live(state, seq, next(iter(page.records), None))


def _of_live(state: TopicState, seq: int, record: Record | None) -> Story:
    topic = state.topic
    story = Story(f"{topic}#{seq}", f"Seq {seq} of {topic} is there.")
    if record is not None and record.seq == seq:
        tag = "" if record.tag is None else f", tag {record.tag}"
        what = f"It has {out.counted(len(record.raw), 'byte')} of data{tag}."
        story.add(1, what, since_ms=record.ts, word="written")
        _tell_letter(story, record)
    if state.queue is not None:
        counts = state.queue
        waiting = "may be at work" if counts.in_flight else "waits: no worker holds any job"
        story.add(
            2,
            f"As a job it {waiting}; {_ready(counts.ready)}, {counts.in_flight} at work.",
            command=f"topics queue stats {topic}",
        )
    else:
        story.add(0, "Readers get it.", command=f"topics read {topic} --after {seq - 1} --limit 1")
    return story


def _tell_letter(story: Story, record: Record) -> None:
    """What a dead letter says about its job."""
    meta = record.meta
    if not isinstance(meta, dict) or letters.FROM not in meta:
        return
    queue, seq = str(meta[letters.FROM]), str(meta.get(letters.SRC_SEQ, "?"))
    cause = cause_of_death(record)
    story.add(
        5,
        f"It is the dead letter of job {seq} of {queue}, which was handed out "
        f"{_times(record)}{f'; its last error was {cause}' if cause else ''}.",
        command=f"topics queue redrive {quote(queue)} --seqs {record.seq}",
    )


def _of_damaged(topic: str, seq: int) -> Story:
    """A seq that was not removed, but that a read announces as lost: its bytes are damaged."""
    story = Story(f"{topic}#{seq}", f"Seq {seq} of {topic} is damaged on disk.")
    story.add(
        2,
        "Readers are told that it is lost, until a good copy of its file is back.",
        command=VERIFY,
    )
    return story


def _of_dead(log: AnyLog, state: TopicState, seq: int, run: Hole) -> Story:
    topic = state.topic
    if state.queue is not None and run.kind == "deleted":
        return _of_ended_job(log, state, seq)
    story = Story(
        f"{topic}#{seq}", f"Seq {seq} of {topic} is gone: {_KINDS.get(run.kind, run.kind)}."
    )
    if run.to_seq > run.from_seq:
        gone = out.seqs(run.from_seq, run.to_seq).capitalize()
        story.add(1, f"{gone} is gone for the same reason.")
    commands = {
        "cap": f"topics cursor ls {topic}",
        "ttl": f"topics cursor ls {topic}",
        "source_trim": "topics router ls",
    }
    command = commands.get(run.kind, f"topics audit {topic}")
    after = _first_after(log, topic, run.to_seq)
    if run.kind == "skipped":
        story.add(2, "No record ever had this seq.", command=command)
    elif after is not None:
        what = f"It was written no later than seq {after.seq}, the next record."
        story.add(2, what, since_ms=after.ts, word="written", command=command)
    else:
        what = "No record follows that would tell when it was written."
        story.add(2, what, since_ms=state.last_write_ts, word="last write", command=command)
    return story


def _of_ended_job(log: AnyLog, state: TopicState, seq: int) -> Story:
    """A finished job is deleted, and so is one that was moved to the dead letters."""
    topic, letters_in = state.topic, state.config["dead_letter"]
    story = Story(f"{topic}#{seq}", f"Job {seq} of {topic} is gone: finished, or deleted.")
    for letter in [] if letters_in is None else dead_letters(log, topic, letters_in):
        if letter.meta.get(letters.SRC_SEQ) != str(seq):
            continue
        story.opening = (
            f"Job {seq} of {topic} is dead: it failed too often and is now "
            f"{letters_in}#{letter.seq}."
        )
        story.add(
            5,
            f"It was handed out {_times(letter)}.",
            since_ms=letter.ts,
            word="died",
            command=f"topics queue redrive {quote(topic)}",
        )
        if cause := cause_of_death(letter):
            story.add(4, f"Its last error was {cause}.")
        return story
    story.add(1, "Its data is gone with it.", command=f"topics audit {quote(topic)}")
    return story


def _run_around(log: AnyLog, topic: str, seq: int, head: int) -> Hole | None:
    """The run of dead seqs that holds `seq`; None when its record lives."""
    holes = log.holes(
        topic, from_seq=max(1, seq - LOOK_AROUND), to_seq=min(head, seq + LOOK_AROUND)
    )
    return next((run for run in holes.runs if run.from_seq <= seq <= run.to_seq), None)


def _first_after(log: AnyLog, topic: str, seq: int) -> Record | None:
    records = log.read(topic, after=seq, limit=1).records
    return records[0] if records else None


def _times(letter: Record) -> str:
    deliveries = str(letter.meta.get(letters.DELIVERIES))
    return out.counted(int(deliveries), "time") if deliveries.isdecimal() else "too often"

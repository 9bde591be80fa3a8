"""What `topics explain` tells: what happened, since when, and the one command that helps."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING

from topics.cli import _output as out
from topics.cli._records import why
from topics.cli.queue import Dead, cause_of_death, dead_letters, records_after
from topics.core.ages import AHEAD_MS
from topics.values import Hole, Record, TopicState
from topics.wire import letters, stories
from topics.wire.stories import DeadJobs, Facts, Story, jobs_ready

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


def of_topic(log: AnyLog, topic: str) -> Story:
    """A whole topic: what it lost, which consumers are behind, what is stuck."""
    state, ledger = log.state(topic, touch=False), log.audit(topic)
    dead = Dead.of(log, state) if state.queue is not None else None
    after_gaps = {}
    for gap in ledger.gaps:
        after = _first_after(log, topic, gap.gap_to)
        if after is not None:
            after_gaps[gap.gap_to] = after.ts
    oldest = next(records_after(log, topic, 0), None) if state.queue is not None else None
    return stories.of_topic(
        Facts(
            state,
            ledger,
            cursors=log.cursors(topic),
            routers=[router for router in log.routers() if router.dest == topic],
            after_gaps=after_gaps,
            oldest_ts=None if oldest is None else oldest.ts,
            ahead=_ahead(log, state),
            dead=None
            if dead is None or dead.oldest is None or dead.letters_in is None
            else DeadJobs(dead.jobs, dead.letters_in, dead.oldest.ts, dead.count != 1),
        )
    )


def _ahead(log: AnyLog, state: TopicState) -> tuple[int, int] | None:
    """The time of the newest record and how far it is ahead, if that is too far."""
    page = log.read(state.topic, after=max(0, state.head_seq - 1), limit=1)
    for newest in page.records:
        ahead_ms = newest.ts - int(time.time() * 1000)
        if ahead_ms > AHEAD_MS:
            return newest.ts, ahead_ms
    return None


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
            f"As a job it {waiting}; {jobs_ready(counts.ready)}, {counts.in_flight} at work.",
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

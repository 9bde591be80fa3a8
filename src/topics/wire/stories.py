"""The story of a topic in sentences: what happened, since when, and the one command that helps.

`topics explain` and the console tell the same ones. The facts come in; nothing is looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from topics.values import Audit, CursorState, QueueCounts, RouterState, TopicState
from topics.wire import plain


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
        return f"{self.what} ({self.word} {plain.moment(self.since_ms)})"


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


@dataclass(frozen=True)
class Facts:
    """What the story of a topic is made of. Times are of records, in milliseconds."""

    state: TopicState
    ledger: Audit
    cursors: Sequence[CursorState] = ()
    routers: Sequence[RouterState] = ()
    """Those into the topic."""
    after_gaps: Mapping[int, int] = field(default_factory=dict)
    """The last seq of a gap, and when the first record behind it was written."""
    oldest_ts: int | None = None
    """When the oldest live record was written."""
    ahead: tuple[int, int] | None = None
    """The time of the newest record and how far it is in the future, if a clock was wrong."""
    dead: DeadJobs | None = None


@dataclass(frozen=True)
class DeadJobs:
    """Jobs of a queue that failed too often."""

    jobs: str
    letters_in: str
    oldest_ts: int
    are_several: bool


def of_topic(facts: Facts) -> Story:
    """A whole topic: what it lost, which consumers are behind, what is stuck."""
    state, ledger = facts.state, facts.ledger
    story = Story(
        state.topic,
        f"{state.topic} is a {state.type} with {state.count} live of "
        f"{plain.counted(ledger.written, 'written record')}; "
        f"its last seq is {state.head_seq}.",
    )
    _tell_losses(story, facts)
    _tell_room(story, state)
    _tell_times(story, facts)
    if state.queue is not None:
        _tell_jobs(story, facts, state.queue)
    for cursor in facts.cursors:
        _tell_cursor(story, cursor)
    for router in facts.routers:
        _tell_router(story, router)
    if not story.findings:
        story.add(0, "Nothing was lost, and nothing waits.")
    return story


def _tell_router(story: Story, router: RouterState) -> None:
    if router.lag:
        story.add(
            3,
            f"Router {router.router} has yet to copy {plain.counted(router.lag, 'record')} of "
            f"{router.source}.",
            command=f"topics router get {quote(router.router)}",
        )


def _tell_losses(story: Story, facts: Facts) -> None:
    state, ledger = facts.state, facts.ledger
    topic, config = state.topic, state.config
    if ledger.lost_cap:
        limit = _limits(config)
        story.add(
            2,
            f"{plain.counted(ledger.lost_cap, 'record')} made room for newer ones, as its cap "
            f"({limit}) asks for. Readers that were too slow saw a gap.",
            since_ms=state.last_write_ts,
            word="the last by a write at",
            command=f"topics cursor ls {topic}",
        )
    if ledger.lost_ttl:
        story.add(
            2,
            f"{plain.counted(ledger.lost_ttl, 'record')} expired, as its TTL "
            f"({_life(config['ttl_ms'])}) asks for. Readers that were too slow saw a gap.",
            command=f"topics cursor ls {topic}",
        )
    for gap in ledger.gaps:
        missing = plain.seqs(gap.gap_from, gap.gap_to).capitalize()
        story.add(
            9,
            f"{missing} is missing: {_CAUSES[gap.cause]}.",
            since_ms=facts.after_gaps.get(gap.gap_to),
            word="before",
            command=f"topics explain '{topic}#{gap.gap_from}'",
        )
    if ledger.lost_crash and not ledger.gaps:
        lost = plain.counted_and(ledger.lost_crash, "record", "was", "were")
        story.add(8, f"At most {lost} lost when the process died.")
    if ledger.skipped:
        skipped = plain.counted_and(ledger.skipped, "seq", "was", "were")
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
        limits.append(plain.counted(config["cap_records"], "record"))
    if config["cap_bytes"]:
        limits.append(plain.size(config["cap_bytes"]))
    return " or ".join(limits) if limits else "since lifted"


def _life(ttl_ms: int) -> str:
    return plain.span(ttl_ms / 1000) if ttl_ms else "since lifted"


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


def _tell_times(story: Story, facts: Facts) -> None:
    """A wrong clock leaves its time in a topic for good."""
    if facts.ahead is None:
        return
    newest_ts, ahead_ms = facts.ahead
    story.add(
        3,
        f"Its newest record is {plain.span(ahead_ms / 1000)} in the future: a clock was wrong. "
        "Times of a topic never go back, so new records get that time too. Its TTL and "
        "idempotency keys go by how long the log has been running since, and leases of the "
        "wrong time have ended: nothing needs to be done, unless the clock is wrong now.",
        since_ms=newest_ts,
        word="it says",
    )


def _tell_jobs(story: Story, facts: Facts, counts: QueueCounts) -> None:
    state = facts.state
    topic = state.topic
    delayed = state.count - counts.ready - counts.in_flight
    if counts.ready and not counts.in_flight:
        story.add(
            6,
            f"{jobs_ready(counts.ready)}, and no worker holds any.",
            since_ms=facts.oldest_ts,
            command=f"topics queue peek {topic}",
        )
    elif state.count:
        story.add(
            1,
            f"{jobs_ready(counts.ready)}, {counts.in_flight} at work, {delayed} held back.",
            since_ms=facts.oldest_ts,
            command=f"topics queue stats {topic}",
        )
    if facts.dead is not None:
        them = "them" if facts.dead.are_several else "it"
        story.add(
            5,
            f"{facts.dead.jobs} failed too often: {facts.dead.letters_in} holds {them}.",
            since_ms=facts.dead.oldest_ts,
            command=f"topics queue dead {topic}",
        )


def jobs_ready(jobs: int) -> str:
    return f"{plain.counted_and(jobs, 'job', 'is', 'are')} ready"


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
            f"Cursor {cursor.cursor} is {plain.counted(cursor.lag_records, 'record')} "
            f"({plain.span(cursor.lag_seconds)}) behind.",
            since_ms=cursor.updated_ts,
            command=f"topics explain {quote(f'{cursor.topic}/{cursor.cursor}')}",
        )

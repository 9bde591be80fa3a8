"""`topics queue`: the jobs of a queue, leased jobs, dead letters."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._groups import CommandGroup
from topics.cli._options import Decorator, Where, on_a_log, topic_argument
from topics.cli._types import checked_seq, seqs_option, time_option
from topics.errors import InvalidRequest, NotAQueue
from topics.values import Job, JobState, PeekedJob, Record, TopicState
from topics.wire import letters

if TYPE_CHECKING:
    from topics.client.interface import AnyLog


PAGE_RECORDS = 1000
MOST_COUNTED = 10_000
"""How many dead letters are counted; each has to be read."""
_JOB = re.compile(r"(\d+)(?:@lease_([0-9a-f]+))?")


def _most(default: int) -> Decorator:
    return click.option(
        "--max",
        "-n",
        "most",
        type=click.IntRange(1, 1000),
        default=default,
        show_default=True,
        help="Largest number of jobs.",
    )


_node = click.option(
    "--node",
    default=lambda: f"{socket.gethostname()}-cli",
    show_default="this machine",
    help="Name of the worker.",
)


def _jobs_argument(command: Callable[..., int]) -> Callable[..., int]:
    def parsed(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> list[Job | int]:
        return [_job(text) for text in texts]

    made: Callable[..., int] = click.argument(
        "jobs", nargs=-1, required=True, metavar="SEQ...", callback=parsed
    )(command)
    return made


def _job(text: str) -> Job | int:
    """A seq, or `seq@lease` as a claim prints it: then only a job under that lease counts."""
    found = _JOB.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is neither a seq nor a seq@lease as a claim prints it")
    seq = checked_seq(int(found[1]))
    if found[2] is None:
        return seq
    return Job(seq, int(found[2], 16), deadline_ms=0, ts=0, deliveries=0, raw=b"null")


@click.group(cls=CommandGroup)
def queue() -> None:
    """Look at the jobs of a queue, claim and finish jobs, put dead ones back."""


@queue.command()
@topic_argument
@on_a_log
def stats(where: Where, *, topic: str, as_json: bool) -> int:
    """Count the jobs of TOPIC. Ready, leased, delayed for a retry, dead."""
    with where.reading() as log:
        state = queue_state(log, topic)
        oldest = next(records_after(log, topic, 0), None)
        dead = Dead.of(log, state)
    assert state.queue is not None
    facts: dict[str, object] = {
        "topic": topic,
        "ready": state.queue.ready,
        "in_flight": state.queue.in_flight,
        "delayed": state.count - state.queue.ready - state.queue.in_flight,
        "dead_lettered": state.queue.dead_lettered,
        "dead_letter": state.config["dead_letter"],
        "dead_letters": dead.count,
        "oldest_seq": None if oldest is None else oldest.seq,
    }
    age = None if oldest is None else time.time() - oldest.ts / 1000
    if as_json:
        out.print_json({**facts, "oldest_seconds": age})
    else:
        del facts["dead_lettered"], facts["dead_letter"]
        facts["dead_letters"] = str(dead)
        facts["oldest age"] = None if age is None else out.span(max(0.0, age))
        out.print_facts({name.replace("_", " "): value for name, value in facts.items()})
    return OK


@queue.command()
@topic_argument
@_most(10)
@click.option(
    "--state", type=click.Choice(["leased", "delayed", "ready"]), help="Only jobs in this state."
)
@on_a_log
def peek(where: Where, *, topic: str, most: int, state: JobState | None, as_json: bool) -> int:
    """Print jobs of TOPIC and which worker holds them, claim none.

    Leased jobs come first, the longest held before the others; then those that wait for a retry;
    then those that are ready.
    """
    with where.reading() as log:
        found = log.queue(topic).peek(most, state=state)
    if as_json:
        for job in found.jobs:
            out.print_json_line({"topic": topic, **job.to_dict()})
    elif found.jobs:
        out.print_table(
            ["seq", "state", "worker", "since", "until", "deliveries", "last error", "tag", "data"],
            (
                [
                    job.seq,
                    job.state,
                    job.node,
                    None if job.claimed_ts is None else out.moment(job.claimed_ts),
                    _until(job),
                    job.deliveries,
                    None if job.last_error is None else str(job.last_error),
                    job.tag,
                    job.raw.decode(),
                ]
                for job in found.jobs
            ),
        )
        if found.more:
            click.echo("there are more; --max 1000 shows up to 1000", err=True)
    else:
        click.echo("no jobs", err=True)
    return OK


def _until(job: PeekedJob) -> str | None:
    """When the lease of a job ends, or the wait for a retry."""
    ends = job.deadline_ts or job.ready_ts
    return None if ends is None else out.moment(ends)


@queue.command()
@topic_argument
@_most(1)
@_node
@time_option("--lease", "lease_ms", help="Length of the lease. Default: lease_ms of the queue.")
@on_a_log
def claim(
    where: Where, *, topic: str, most: int, node: str, lease_ms: int | None, as_json: bool
) -> int:
    """Take jobs of TOPIC on lease and print them. Acknowledge each before its lease ends.

    It is no error if there is no job. With --dir a lease ends with the command, unless the queue
    has leases_durable=true.
    """
    with where.writing() as log:
        jobs = log.queue(topic, node=node).claim(most, lease_ms=lease_ms)
    for job in jobs:
        if as_json:
            out.print_json_line(_job_facts(topic, node, job))
        else:
            tag = f"  [{out.safe(job.tag)}]" if job.tag is not None else ""
            print(
                f"{job.seq}@{_lease(job)}  until {out.moment(job.deadline_ms)}  "
                f"delivery {job.deliveries}{tag}  {out.safe(job.raw.decode())}"
            )
    if not jobs and not as_json:
        click.echo("no jobs", err=True)
    return OK


@queue.command()
@topic_argument
@_jobs_argument
@_node
@on_a_log
def ack(where: Where, *, topic: str, jobs: list[Job | int], node: str, as_json: bool) -> int:
    """Finish jobs of TOPIC: remove them for good.

    Jobs that this worker does not hold are skipped, and the exit code is 1.
    """
    with where.writing() as log:
        done = log.queue(topic, node=node).ack(jobs)
    return _tell(
        done.to_dict(), f"finished {out.counted(done.acked, 'job')}", done.skipped, as_json=as_json
    )


@queue.command()
@topic_argument
@_jobs_argument
@_node
@time_option(
    "--delay", "delay_ms", help="Time until a worker may claim the jobs again.", default="0s"
)
@click.option("--error", metavar="TEXT", help="What went wrong; a dead letter keeps it.")
@on_a_log
def nack(
    where: Where,
    *,
    topic: str,
    jobs: list[Job | int],
    node: str,
    delay_ms: int,
    error: str | None,
    as_json: bool,
) -> int:
    """Give jobs of TOPIC back, for another try.

    Jobs that this worker does not hold are skipped, and the exit code is 1.
    """
    with where.writing() as log:
        done = log.queue(topic, node=node).nack(jobs, delay_ms=delay_ms, error=error)
    return _tell(
        done.to_dict(),
        f"gave back {out.counted(done.nacked, 'job')}",
        done.skipped,
        as_json=as_json,
    )


@queue.command()
@topic_argument
@_most(10)
@on_a_log
def dead(where: Where, *, topic: str, most: int, as_json: bool) -> int:
    """Print the dead letters of TOPIC. Those are jobs that failed too often."""
    with where.reading() as log:
        letters_in = dead_letter_topic(queue_state(log, topic))
        found = [
            letter
            for _, letter in zip(range(most), dead_letters(log, topic, letters_in), strict=False)
        ]
    if as_json:
        for letter in found:
            kept = {
                "data": msgspec.Raw(letter.raw),
                "meta": msgspec.Raw(letter.raw_meta or b"null"),
            }
            out.print_json_line({"dead_letter": letters_in, **letter.to_dict(), **kept})
    elif found:
        out.print_table(
            ["dead letter", "was seq", "deliveries", "died", "last error", "tag", "data"],
            (
                [
                    f"{letters_in}#{letter.seq}",
                    letter.meta[letters.SRC_SEQ],
                    letter.meta[letters.DELIVERIES],
                    out.moment(letter.ts),
                    cause_of_death(letter),
                    letter.tag,
                    letter.raw.decode(),
                ]
                for letter in found
            ),
        )
    else:
        click.echo(f"no dead letters of {topic} in {out.safe(letters_in)}", err=True)
    return OK


@queue.command()
@topic_argument
@click.option("--from", "source", metavar="TOPIC", help="Default: the queue's dead-letter topic.")
@_most(100)
@seqs_option(help="Exactly these dead letters, as `topics queue dead` prints them; at most 1000.")
@on_a_log
def redrive(
    where: Where,
    *,
    topic: str,
    source: str | None,
    most: int,
    seqs: list[int] | None,
    as_json: bool,
) -> int:
    """Put dead letters of TOPIC back into it. Oldest first, as fresh jobs."""
    with where.writing() as log:
        done = log.queue(topic).redrive(source=source, most=most, seqs=seqs)
    facts = {"topic": topic, "from": done.source, "moved": done.moved, "more": done.more}
    more = "; there are more" if done.more else ""
    jobs = out.counted(done.moved, "job")
    words = f"put {jobs} back into {topic} from {out.safe(done.source)}{more}"
    out.tell(facts, words, as_json=as_json)
    return OK


def queue_state(log: AnyLog, topic: str) -> TopicState:
    """The state of a topic that is a queue."""
    state = log.state(topic, touch=False)
    if state.queue is None:
        raise NotAQueue(topic)
    return state


def dead_letter_topic(state: TopicState) -> str:
    """Where a queue's dead letters go."""
    name: str | None = state.config["dead_letter"]
    if name is None:
        raise InvalidRequest(
            f"{state.topic} gives no job up; set it up with "
            f"`topics config {state.topic} max_deliveries=5 dead_letter={state.topic}.dead`"
        )
    return name


def dead_letters(log: AnyLog, topic: str, letters_in: str) -> Iterator[Record]:
    """Jobs of a queue among the dead letters of a topic, oldest first."""
    if any(found.topic == letters_in for found in log.topics(prefix=letters_in)):
        for letter in records_after(log, letters_in, 0):
            meta = letter.meta
            if isinstance(meta, dict) and meta.get(letters.FROM) == topic:
                yield letter


@dataclass(frozen=True)
class Dead:
    """The dead letters of a queue that there are now.

    The log holds them, so that this count outlives a restart; `dead_lettered` of a queue's state
    begins anew then.
    """

    letters_in: str | None
    count: int
    oldest: Record | None

    @classmethod
    def of(cls, log: AnyLog, state: TopicState) -> Dead:
        letters_in = state.config["dead_letter"]
        if letters_in is None:
            return cls(None, 0, None)
        found = dead_letters(log, state.topic, letters_in)
        oldest = next(found, None)
        rest = sum(1 for _ in islice(found, MOST_COUNTED - 1))
        return cls(letters_in, rest + (oldest is not None), oldest)

    @property
    def jobs(self) -> str:
        jobs = out.counted(self.count, "job")
        return jobs if self.count < MOST_COUNTED else f"{jobs} or more"

    def __str__(self) -> str:
        if self.letters_in is None:
            return "-"
        more = " or more" if self.count >= MOST_COUNTED else ""
        return f"{self.count}{more} in {self.letters_in}"


def cause_of_death(letter: Record) -> str:
    """What its last worker failed with; empty when the dead letter does not say."""
    failure = letters.failure_in(letter.meta)
    return "" if failure is None else f"{failure} (worker {failure.worker})"


def records_after(log: AnyLog, topic: str, after: int) -> Iterator[Record]:
    """Live records up to the end as it is met."""
    while True:
        page = log.read(topic, after=after, limit=PAGE_RECORDS)
        yield from page.records
        after = page.next_from_seq
        if page.caught_up:
            return


def _job_facts(topic: str, node: str, job: Job) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "topic": topic,
        "node": node,
        "$seq": job.seq,
        "lease_id": _lease(job),
        "deadline": job.deadline_ms,
        "$ts": job.ts,
        "deliveries": job.deliveries,
        "data": msgspec.Raw(job.raw),
    }
    if job.tag is not None:
        facts["$tag"] = job.tag
    if job.raw_meta is not None:
        facts["meta"] = msgspec.Raw(job.raw_meta)
    return facts


def _lease(job: Job) -> str:
    return f"lease_{job.lease_id:x}"


def _tell(facts: dict[str, Any], words: str, skipped: Any, *, as_json: bool) -> int:  # noqa: ANN401
    held = f"; not held by this worker: {', '.join(map(str, skipped))}" if skipped else ""
    out.tell(facts, f"{words} of {facts['topic']}{held}", as_json=as_json)
    return NO if skipped else OK

"""Jobs: what a worker sends, and what the answers mean. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from topics.client import _routes as routes
from topics.client._call import ApiCall
from topics.client._calls import state
from topics.client._routes import ParsedJob, ParsedPeekedJob
from topics.client.keywords import Jobs
from topics.errors import InvalidRequest, NotAQueue
from topics.values import (
    Acked,
    Extended,
    Failure,
    Job,
    JobState,
    Nacked,
    PeekedJob,
    PeekedJobs,
    QueueCounts,
    Redriven,
)
from topics.wire.jsonbytes import encode
from topics.wire.letters import error_of
from topics.wire.tokens import lease_token, parse_lease


def claim(queue: str, node: str, *, most: int, lease_ms: int | None) -> ApiCall[Sequence[Job]]:
    """Not repeated once sent: the first try may have leased jobs whose answer was lost."""
    _check(most=most, lease_ms=lease_ms)
    asked: dict[str, Any] = {"node": node, "max": most}
    if lease_ms is not None:
        asked["lease_ms"] = lease_ms
    return ApiCall(
        *routes.CLAIM_JOBS.at(topic=queue),
        lambda body: list(map(_job_of, routes.CLAIM_JOBS.parse(body).claimed)),
        encode(asked),
        longer=5.0,  # the longest `claim_jitter_ms`
    )


def ack(queue: str, node: str, jobs: Jobs) -> ApiCall[Acked]:
    """Repeated when the answer was lost; a job that the first try finished is then `skipped`."""
    body = encode(_named(node, jobs))
    return routes.ACK_JOBS.call(body, idempotent=True, topic=queue)


def nack(
    queue: str, node: str, jobs: Jobs, *, delay_ms: int, error: BaseException | str | None
) -> ApiCall[Nacked]:
    _check(delay_ms=delay_ms)
    told = {} if error is None else {"error": error_of(error)}
    body = encode(_named(node, jobs) | {"delay_ms": delay_ms} | told)
    return routes.NACK_JOBS.call(body, idempotent=True, topic=queue)


def extend(queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ApiCall[Extended]:
    _check(lease_ms=lease_ms)
    body = encode(_named(node, jobs) | {"lease_ms": lease_ms})
    return routes.EXTEND_JOBS.call(body, idempotent=True, topic=queue)


def redrive(
    queue: str, *, source: str | None, most: int, seqs: Sequence[int] | None
) -> ApiCall[Redriven]:
    _check(most=most)

    def parse(body: bytes) -> Redriven:
        done = routes.REDRIVE_JOBS.parse(body)
        return Redriven(done.topic, done.source, done.moved, done.more)

    asked: dict[str, Any] = {"max": most} if source is None else {"max": most, "from": source}
    if seqs is not None:
        asked["seqs"] = list(seqs)
    return ApiCall(*routes.REDRIVE_JOBS.at(topic=queue), parse, encode(asked))


def peek(queue: str, *, most: int, state: JobState | None) -> ApiCall[PeekedJobs]:
    _check(most=most)

    def parse(body: bytes) -> PeekedJobs:
        page = routes.LIST_JOBS.parse(body)
        return PeekedJobs(page.topic, list(map(_peeked_of, page.jobs)), page.more)

    query = {"limit": str(most)} | ({} if state is None else {"state": state})
    return ApiCall(*routes.LIST_JOBS.at(topic=queue), parse, query=query)


def stats(queue: str) -> ApiCall[QueueCounts]:
    asked = state(queue, touch=False)

    def parse(body: bytes) -> QueueCounts:
        counts = asked.parse(body).queue
        if counts is None:
            raise NotAQueue(queue)
        return counts

    return ApiCall(asked.method, asked.path, parse, query=asked.query)


def _job_of(sent: ParsedJob) -> Job:
    return Job(
        sent.seq,
        parse_lease(sent.lease_id) or 0,
        sent.deadline,
        sent.ts,
        sent.deliveries,
        bytes(sent.data),
        sent.tag,
        None if sent.meta is UNSET else bytes(sent.meta),
    )


def _peeked_of(sent: ParsedPeekedJob) -> PeekedJob:
    said = sent.last_error
    return PeekedJob(
        sent.seq,
        sent.state,
        sent.deliveries,
        sent.node,
        sent.claimed_ts,
        sent.deadline_ts,
        sent.ready_ts,
        None if said is None else Failure(said.node, said.ts, said.type, said.message),
        sent.tag,
        bytes(sent.data),
    )


def _named(node: str, jobs: Jobs) -> dict[str, Any]:
    seqs: list[int] = []
    lease_ids: list[str] = []
    for job in jobs:
        if isinstance(job, Job):
            seqs.append(job.seq)
            lease_ids.append(lease_token(job.lease_id))
        else:
            seqs.append(job)
            lease_ids.append("")
    return {"node": node, "seqs": seqs, "lease_ids": lease_ids}


def _check(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 0:
            raise InvalidRequest(f"{name} must be 0 or more, not {value}")

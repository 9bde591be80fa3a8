"""Jobs: what a worker sends, and what the answers mean. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

from topics.client._call import ApiCall, at, reader
from topics.client._calls import state
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


class _Job(Struct, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag"}):
    seq: int
    lease_id: str
    deadline: int
    ts: int
    deliveries: int
    data: Raw
    tag: str | None = None
    meta: Raw | UnsetType = UNSET

    def value(self) -> Job:
        return Job(
            self.seq,
            parse_lease(self.lease_id) or 0,
            self.deadline,
            self.ts,
            self.deliveries,
            bytes(self.data),
            self.tag,
            None if self.meta is UNSET else bytes(self.meta),
        )


class _Claimed(Struct):
    claimed: list[_Job]


class _Redriven(Struct):
    topic: str
    source: str = field(name="from")
    moved: int = 0
    more: bool = False


_claimed, _acked, _nacked = reader(_Claimed), reader(Acked), reader(Nacked)
_extended, _redriven = reader(Extended), reader(_Redriven)


def claim(queue: str, node: str, *, most: int, lease_ms: int | None) -> ApiCall[Sequence[Job]]:
    """Not repeated once sent: the first try may have leased jobs that nobody would work on."""
    _check(most=most, lease_ms=lease_ms)
    asked: dict[str, Any] = {"node": node, "max": most}
    if lease_ms is not None:
        asked["lease_ms"] = lease_ms
    return ApiCall(
        *at("claimJobs", topic=queue),
        lambda body: [job.value() for job in _claimed(body).claimed],
        encode(asked),
        longer=5.0,  # the longest `claim_jitter_ms`
    )


def ack(queue: str, node: str, jobs: Jobs) -> ApiCall[Acked]:
    """Repeated when the answer was lost; a job that the first try finished is then `skipped`."""
    body = encode(_named(node, jobs))
    return ApiCall(*at("ackJobs", topic=queue), _acked, body, idempotent=True)


def nack(
    queue: str, node: str, jobs: Jobs, *, delay_ms: int, error: BaseException | str | None
) -> ApiCall[Nacked]:
    _check(delay_ms=delay_ms)
    told = {} if error is None else {"error": error_of(error)}
    body = encode(_named(node, jobs) | {"delay_ms": delay_ms} | told)
    return ApiCall(*at("nackJobs", topic=queue), _nacked, body, idempotent=True)


def extend(queue: str, node: str, jobs: Jobs, *, lease_ms: int) -> ApiCall[Extended]:
    _check(lease_ms=lease_ms)
    body = encode(_named(node, jobs) | {"lease_ms": lease_ms})
    return ApiCall(*at("extendJobs", topic=queue), _extended, body, idempotent=True)


def redrive(
    queue: str, *, source: str | None, most: int, seqs: Sequence[int] | None
) -> ApiCall[Redriven]:
    _check(most=most)

    def parse(body: bytes) -> Redriven:
        done = _redriven(body)
        return Redriven(done.topic, done.source, done.moved, done.more)

    asked: dict[str, Any] = {"max": most} if source is None else {"max": most, "from": source}
    if seqs is not None:
        asked["seqs"] = list(seqs)
    return ApiCall(*at("redriveJobs", topic=queue), parse, encode(asked))


class _Failure(Struct):
    type: str
    message: str
    node: str
    ts: int


class _Peeked(Struct):
    seq: int
    state: JobState
    deliveries: int
    data: Raw
    node: str | None = None
    claimed_ts: int | None = None
    deadline_ts: int | None = None
    ready_ts: int | None = None
    last_error: _Failure | None = None
    tag: str | None = None

    def value(self) -> PeekedJob:
        said = self.last_error
        return PeekedJob(
            self.seq,
            self.state,
            self.deliveries,
            self.node,
            self.claimed_ts,
            self.deadline_ts,
            self.ready_ts,
            None if said is None else Failure(said.node, said.ts, said.type, said.message),
            self.tag,
            bytes(self.data),
        )


class _PeekedPage(Struct):
    topic: str
    jobs: list[_Peeked]
    more: bool


_peeked = reader(_PeekedPage)


def peek(queue: str, *, most: int, state: JobState | None) -> ApiCall[PeekedJobs]:
    _check(most=most)

    def parse(body: bytes) -> PeekedJobs:
        page = _peeked(body)
        return PeekedJobs(page.topic, [job.value() for job in page.jobs], page.more)

    query = {"limit": str(most)} | ({} if state is None else {"state": state})
    return ApiCall(*at("listJobs", topic=queue), parse, query=query)


def stats(queue: str) -> ApiCall[QueueCounts]:
    asked = state(queue, touch=False)

    def parse(body: bytes) -> QueueCounts:
        counts = asked.parse(body).queue
        if counts is None:
            raise NotAQueue(queue)
        return counts

    return ApiCall(asked.method, asked.path, parse, query=asked.query)


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

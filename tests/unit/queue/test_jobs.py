"""Claimed jobs, which are made from their frames when somebody looks."""

from __future__ import annotations

import pytest

from topics.batch import RecordBatch
from topics.core.leases import Lease
from topics.engine.effects import Io, Op, resumed, run
from topics.errors import Internal
from topics.queue import Jobs
from topics.queue.jobs import NO_JOBS
from topics.storage.frames.append import encode_append
from topics.values import Job
from topics.wire.responses import job_members

TS = 1_790_000_000_500
ROWS = [
    (7, 10, 900, TS, 1, b'{"a":1}', None, None),
    (8, 11, 900, TS, 2, b"null", "order:7", b'{"m":[1]}'),
    (9, 12, 900, TS, 1, b'"x"', None, b"{}"),
    (10, 13, 900, TS, 3, b"[]", "t", None),
]


def claimed() -> Jobs:
    """Four records: plain, with everything, with a writer and meta, with a tag."""
    batch = RecordBatch(
        [row[5] for row in ROWS],
        [row[7] or b"" for row in ROWS],
        [row[6] for row in ROWS],
        [None, "writer", "writer", None],
    )
    frames, run_of = encode_append(1, 7, TS, batch, durable=False)
    leases = [Lease(row[1], "w", row[2]) for row in ROWS]
    offsets = list(run_of.offsets)
    return Jobs([7, 8, 9, 10], leases, [row[4] for row in ROWS], [frames] * 4, offsets)


def test_jobs_are_rendered_as_one_by_one() -> None:
    assert claimed().rendered() == [job_members(row) for row in ROWS]


def test_plain_jobs_share_only_what_they_have_in_common() -> None:
    rows = [
        (1, 1, 900, TS, 1, b"1", None, None),
        (2, 2, 900, TS, 1, b"2", None, None),
        (3, 3, 900, TS + 1, 1, b"3", None, None),
        (4, 4, 900, TS + 1, 2, b"4", None, None),
        (5, 5, 901, TS + 1, 2, b"5", None, None),
    ]
    bufs = [
        encode_append(1, row[0], row[3], RecordBatch([row[5]]), durable=False)[0] for row in rows
    ]
    leases = [Lease(row[1], "w", row[2]) for row in rows]
    jobs = Jobs([row[0] for row in rows], leases, [row[4] for row in rows], bufs, [0] * 5)
    assert jobs.rendered() == [job_members(row) for row in rows]
    assert list(jobs) == [Job(*row) for row in rows]


@pytest.mark.parametrize("meta", [None, b"{}"])
@pytest.mark.parametrize("node", [None, "", "writer"])
def test_an_empty_tag_is_a_tag(node: str | None, meta: bytes | None) -> None:
    row = (1, 1, 900, TS, 1, b"1", "", meta)
    batch = RecordBatch([row[5]], [meta or b""], [row[6]], [node])
    buf, _ = encode_append(1, row[0], TS, batch, durable=False)
    jobs = Jobs([row[0]], [Lease(row[1], "w", row[2])], [row[4]], [buf], [0])
    assert jobs.rendered() == [job_members(row)]
    assert list(jobs) == [Job(*row)]


def test_jobs_are_a_list_to_whoever_looks() -> None:
    jobs, wanted = claimed(), [Job(*row) for row in ROWS]
    assert (len(jobs), list(jobs), jobs[1], jobs[-1]) == (4, wanted, wanted[1], wanted[3])
    assert jobs[1:3] == wanted[1:3]
    assert jobs == wanted
    assert jobs != wanted[:3]
    assert jobs != 4
    assert repr(jobs) == repr(wanted)
    assert (jobs.seqs, jobs.lease_ids) == ([7, 8, 9, 10], [10, 11, 12, 13])
    assert (list(NO_JOBS), NO_JOBS.rendered(), bool(NO_JOBS)) == ([], [], False)


def _twice() -> Op[list[object]]:
    """Waits for file work two times and lives with a failure."""
    found: list[object] = []
    for number in range(2):
        try:
            found.append((yield Io(lambda number=number: 1 // number)))  # type: ignore[misc]
        except ZeroDivisionError:
            found.append("failed")
    return found


def test_an_operation_goes_on_elsewhere_as_if_it_had_begun_there() -> None:
    op = _twice()
    assert run(resumed(op, next(op))) == ["failed", 1]


def test_what_an_operation_raises_elsewhere_arrives() -> None:
    def fails() -> Op[None]:
        yield Io(lambda: None)
        raise Internal("broken")

    op = fails()
    with pytest.raises(Internal, match="broken"):
        run(resumed(op, next(op)))

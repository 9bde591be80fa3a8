"""`topics bench queues`: what it costs to hand out a job and to be done with it.

Method. Over HTTP fifty workers, in a process of their own, claim 8 jobs at a time and ack them
until a queue that was filled before is empty; the budget is server CPU time a job, user and system.
The row `backlog` does the same with jobs that have left memory.
Embedded, one worker claims and acks batches of 100. The row `flat` does the same after ever more
jobs have been done: a claim must not get slower with a queue's past. Jobs have 100 bytes of JSON.
The row `ceiling` shows what the workers reach against a server that hands out the same answer over
and over: beyond that no server could be measured with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import topics
from topics.bench.bench import Bench, Row, payload, run, stored
from topics.bench.measure import Goal, Rates, Result, at_least, at_most, stopwatch
from topics.bench.queues_workers import TOPIC
from topics.bench.server_process import driven, empty, served
from topics.embedded import Log

WORKERS = 50
BATCH = 100
FILL = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    return run("queues", "Claiming and acking jobs, over HTTP and embedded.", ROWS, argv)


def over_http(bench: Bench) -> Iterator[Result]:
    """Fifty workers empty a queue."""
    jobs = bench.count(100_000, least=2000)
    with bench.scratch() as path, served(path) as server:
        server.create(TOPIC, type="queue")
        bench.say(f"{WORKERS} workers: filling the queue")
        server.fill(TOPIC, payload(), jobs)
        bench.say(f"{WORKERS} workers, {jobs:,} jobs")
        found, spent = driven(server, "topics.bench.queues_workers", WORKERS)
    what = f"{WORKERS} HTTP workers, claim 8 + ack"
    goals = [at_most(16), at_least(40_000), at_most(2.5), at_most(10)]
    yield from _emptied("http", what, jobs, found=found, spent=spent, goals=goals)


def backlog(bench: Bench) -> Iterator[Result]:
    """The same with jobs that have waited for so long that they are in segments only."""
    jobs = bench.count(100_000, least=2000)
    with bench.scratch() as path:
        bench.say("a backlog on disk: filling the queue")
        with topics.open(path / "data") as log:
            _fill(log, jobs)
        with served(path) as server:
            bench.say(f"{WORKERS} workers, a backlog of {jobs:,} jobs on disk")
            found, spent = driven(server, "topics.bench.queues_workers", WORKERS)
    what = f"{WORKERS} HTTP workers, backlog on disk"
    yield from _emptied("backlog", what, jobs, found=found, spent=spent)


def _emptied(
    row: str,
    what: str,
    jobs: int,
    *,
    found: dict[str, Any],
    spent: float,
    goals: Sequence[Goal | None] = (None,) * 4,
) -> Iterator[Result]:
    """What it took workers and server to empty a queue."""
    if found["jobs"] != jobs:
        raise RuntimeError(f"{found['jobs']} of {jobs} jobs were acked")
    busy = found["generator_cpu_s"] / found["seconds"]
    rate = jobs / found["seconds"]
    cpu, jobs_a_second, p50, p99 = goals
    yield Result(row, f"{what}: server CPU", spent / jobs * 1e6, "us/job", goal=cpu)
    yield Result(row, f"{what}, generator {busy:.0%} busy", rate, "jobs/s", goal=jobs_a_second)
    yield Result(row, f"{what}: generator CPU", found["generator_cpu_s"] / jobs * 1e6, "us/job")
    yield Result(row, f"{what}: claim p50", found["p50_us"] / 1e3, "ms", goal=p50)
    yield Result(row, f"{what}: claim p99", found["p99_us"] / 1e3, "ms", goal=p99)


def ceiling(bench: Bench) -> Iterator[Result]:
    """The same workers against a queue that does nothing."""
    jobs = bench.count(400_000, least=2000)
    with bench.scratch() as path:
        bench.say(f"{WORKERS} workers against a fixed answer")
        with empty(path, "jobs", jobs) as server:
            found, _ = driven(server, "topics.bench.queues_workers", WORKERS)
    what = f"{WORKERS} workers against a fixed answer"
    cpu_us = found["generator_cpu_s"] / found["jobs"] * 1e6
    yield Result("ceiling", what, found["jobs"] / found["seconds"], "jobs/s")
    yield Result("ceiling", f"{what}: generator CPU", cpu_us, "us/job")
    yield Result("ceiling", f"{what}: claim p50", found["p50_us"] / 1e3, "ms")


def embedded(bench: Bench) -> Iterator[Result]:
    """Claim and ack in batches of a hundred, without a server."""
    jobs = bench.count(50_000, least=BATCH)
    rates = []
    for repeat in range(bench.repeats):
        bench.say(f"embedded claim + ack, {repeat + 1} of {bench.repeats}")
        with bench.scratch() as path, topics.open(path) as log:
            _fill(log, jobs)
            rates.append(_drain(log, jobs))
    what = f"embedded claim + ack, batches of {BATCH}"
    yield Rates(tuple(rates)).result("embedded", what, "jobs/s", goal=at_least(200_000))


def flatness(bench: Bench) -> Iterator[Result]:
    """The same after more and more jobs were done; a tenth as many lie on lease or wait.

    The median batch, with the tenth percentile beside it: the log's tail is synced every 10 ms
    whatever the past, and a mean would show the disk.
    """
    largest = bench.count(1_000_000, least=10_000)
    first = 0.0
    for past in (size for size in (10_000, 100_000, 1_000_000) if size <= largest):
        bench.say(f"claim + ack after {past:,} jobs")
        with bench.scratch() as path, topics.open(path) as log:
            _fill(log, past)
            _drain(log, past)
            _fill(log, past // 10)
            held = log.queue(TOPIC, node="slow")
            for _ in range(past // 20 // BATCH):
                held.claim(BATCH)
            calls = bench.count(20_000, least=BATCH)
            _fill(log, calls)
            costs = sorted(_batches_us(log, calls))
        cost, quick = costs[len(costs) // 2], costs[len(costs) // 10]
        first = first or cost
        what = f"claim + ack after {past:,} jobs, {past // 20:,} of others on lease"
        raw_what = "the same after 10,000"
        yield Result("flat", what, cost, "us/job", quick, raw=first, raw_what=raw_what)


def _fill(log: Log, jobs: int) -> None:
    if TOPIC not in [state.topic for state in log.topics()]:
        log.create(TOPIC, type="queue")
    data = stored(payload())
    for start in range(0, jobs, FILL):
        batch: list[dict[str, Any]] = [{"data": data}] * min(FILL, jobs - start)
        log.append(TOPIC, batch)


def _drain(log: Log, jobs: int) -> float:
    """Jobs a second, until so many are done."""
    with stopwatch() as elapsed:
        for _ in _batches_us(log, jobs):
            pass
        return jobs / elapsed()


def _batches_us(log: Log, jobs: int) -> Iterator[float]:
    """Microseconds a job of each batch, until so many are done."""
    worker, done, size = log.queue(TOPIC, node="worker"), 0, 0
    while done < jobs:
        with stopwatch() as elapsed:
            claimed = worker.claim(BATCH)
            for job in claimed:
                size += len(job.raw)  # a worker looks at each of them
            acked = worker.ack(claimed).acked
            yield elapsed() / acked * 1e6
        done += acked


ROWS: dict[str, Row] = {
    "ceiling": ceiling,
    "http": over_http,
    "backlog": backlog,
    "embedded": embedded,
    "flat": flatness,
}

if __name__ == "__main__":
    sys.exit(main())

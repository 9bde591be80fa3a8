"""`topics bench server`: what a request, a record and a delivery cost a real server.

Method. A server with keys, a cold tier and checkpoints on runs in one process, the load
comes from another: `h2load` for requests, a program of our own for watchers. The budgets are server
CPU time, user and system, since a busy machine moves that least; it includes whatever the server
does besides, such as its sync every 10 ms. Latencies are the client's, p50 and p99, and mean
something on a quiet machine only. The row `ceiling` shows what the generator can do against a
server that does nothing: where another row comes near it, the generator is what was measured.

Records have 100 bytes of JSON. Nothing here passes or fails: a number that misses its goal is
printed as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from topics.bench import raw
from topics.bench.appending import FRAME_BYTES
from topics.bench.bench import Bench, Row, payload, run
from topics.bench.measure import Goal, Result, at_most, durations
from topics.bench.server_load import LoadOutcome, LoadPlan, send
from topics.bench.server_process import BenchServer, ServingChild, driven, empty, served
from topics.bench.server_watch import TOPIC

VERSIONS = (False, True)
CLASSES = ("disk", "fsync")
WRITERS, BATCH = 16, 100
WATCHERS = (1, 10, 100, 500)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    return run("server", "CPU and latency of a real server.", ROWS, argv)


# What the generator can do


def ceiling(bench: Bench) -> Iterator[Result]:
    """Requests a second against a fixed answer, and against our transport with nothing behind."""
    body = _records(1)
    for kind, h2 in (("bare", False), ("transport", False), ("transport", True)):
        for connections in (1,) if bench.is_trial else (1, WRITERS):
            plan = LoadPlan("/", body, bench.count(20_000, least=50), connections, h2)
            what = "a fixed answer" if kind == "bare" else "our transport, empty handler"
            label = f"{what}, {plan.version}, {connections} connections"
            bench.say(label)
            with bench.scratch() as path, empty(path, kind) as server:
                load = _warm(server, plan, path)
            yield Result("ceiling", label, load.rate, "requests/s")
            yield Result("ceiling", f"{label}: server CPU", load.cpu_us, "us/request")
            if connections == 1:
                yield Result("ceiling", f"{label}: p50", load.percentile_us(0.5), "us")


# Writes


def lone_write(bench: Bench) -> Iterator[Result]:
    """One client, one record a request, one request at a time."""
    with bench.scratch() as path, served(path) as server:
        _create_classes(server)
        for h2 in VERSIONS:
            for klass in CLASSES:
                requests = bench.count(10_000, least=20)
                plan = LoadPlan(f"/v0/topics/{klass}", _records(1), requests, h2=h2)
                what = f"lone write, {klass}, {plan.version}"
                bench.say(what)
                goal = at_most(250 if h2 else 170) if klass == "disk" else None
                yield from _cost("write1", what, _warm(server, plan, path), goal)
        yield from _against_raw(bench, server, path)
    with bench.scratch() as path, served(path, TOPICS_ACCESS_LOG=str(path / "access")) as server:
        _create_classes(server)
        bench.say("lone write with the access log on")
        plan = LoadPlan("/v0/topics/disk", _records(1), bench.count(10_000, least=20))
        load = _warm(server, plan, path)
        what = "lone write, disk, HTTP/1.1, access log on: server CPU"
        yield Result("write1", what, load.cpu_us, "us/request")


def _against_raw(bench: Bench, server: BenchServer, path: Path) -> Iterator[Result]:
    """A lone durable write beside a bare write with sync and a bare exchange of the same run."""
    bench.say("lone write, fsync: raw")
    rounds = bench.count(1000, least=10)
    file = raw.RawFile(path, FRAME_BYTES, sync_s=0)
    bare = statistics.median(durations(file.write, calls=rounds)) * 1e6
    file.close()
    plan = LoadPlan("/", _records(1), rounds)
    echo = _empty_p50_us(bench, "bare", plan)
    floor = _empty_p50_us(bench, "durable", plan)
    durable = _warm(server, LoadPlan("/v0/topics/fsync", plan.body, rounds), path).percentile_us(
        0.5
    )
    unit = "times raw"
    what = "lone write, fsync, HTTP/1.1: p50 against write + fdatasync + loopback exchange"
    yield Result("write1", what, durable / (bare + echo), unit, goal=at_most(1.5))
    what = "a server that only writes, has a thread sync, and answers: the same"
    yield Result("write1", what, floor / (bare + echo), unit)
    yield Result("write1", "write + fdatasync, p50", bare, "us")
    yield Result("write1", "loopback exchange, p50", echo, "us")


def _empty_p50_us(bench: Bench, kind: str, plan: LoadPlan) -> float:
    with bench.scratch() as path, empty(path, kind) as server:
        return _warm(server, plan, path).percentile_us(0.5)


def batches(bench: Bench) -> Iterator[Result]:
    """Sixteen clients, a hundred records a request."""
    with bench.scratch() as path, served(path) as server:
        _create_classes(server)
        for h2 in VERSIONS:
            for klass in CLASSES:
                requests = bench.count(4000, least=WRITERS)
                plan = LoadPlan(f"/v0/topics/{klass}", _records(BATCH), requests, WRITERS, h2)
                what = f"{WRITERS} x {BATCH} batches, {klass}, {plan.version}"
                bench.say(what)
                load = _warm(server, plan, path)
                goal = at_most(2.6) if klass == "disk" and not h2 else None
                yield Result("batches", what, load.rate * BATCH, "records/s")
                yield Result(
                    "batches", f"{what}: server CPU", load.cpu_us / BATCH, "us/record", goal=goal
                )


# Reads


def diffs(bench: Bench) -> Iterator[Result]:
    """Reading 1, 256 and 1000 records a call, from the front of a topic of 10 000."""
    with bench.scratch() as path, served(path) as server:
        _create_classes(server)
        server.fill("disk", payload(), bench.count(10_000, least=1000))
        for h2 in VERSIONS:
            for limit in (1, 256, 1000):
                body = json.dumps({"from_seq": 0, "limit": limit}).encode()
                requests = bench.count(4000, least=20)
                plan = LoadPlan("/v0/topics/disk/diff", body, requests, h2=h2)
                what = f"diff of {limit}, {plan.version}"
                bench.say(what)
                goal = at_most(150) if limit == 1000 and not h2 else None
                yield from _cost("diff", what, _warm(server, plan, path), goal)


# Watches


def watches(bench: Bench) -> Iterator[Result]:
    """From the start of a write to its arrival at each of 1, 10, 100 and 500 watchers."""
    for version in ("HTTP/1.1", "h2c"):
        for watchers in (1,) if bench.is_trial else WATCHERS:
            with bench.scratch() as path, served(path) as server:
                server.create(TOPIC)
                bench.say(f"{watchers} watchers, {version}")
                writes = bench.count(max(40_000 // watchers, 200), least=3)
                yield from _deliveries(server, watchers, min(writes, 2000), version)


def _deliveries(server: BenchServer, watchers: int, writes: int, version: str) -> Iterator[Result]:
    found, spent = driven(server, "topics.bench.server_watch", watchers, writes, version)
    what = f"{watchers} watchers, {version}"
    is_judged = version == "HTTP/1.1" and watchers >= 100
    cpu_us, goal = spent / found["deliveries"] * 1e6, at_most(14) if is_judged else None
    label = f"{what}: server CPU, the write included"
    yield Result("watch", label, cpu_us, "us/delivery", goal=goal)
    yield Result("watch", f"{what}: write to delivery, p50", found["p50_us"] / 1e3, "ms")
    goal = at_most(5) if is_judged and watchers == 100 else None
    yield Result("watch", f"{what}: p99", found["p99_us"] / 1e3, "ms", goal=goal)
    rate = found["deliveries"] / found["seconds"]
    busy = found["generator_cpu_s"] / found["seconds"]
    yield Result("watch", f"{what}: deliveries, generator {busy:.0%} busy", rate, "per s")


# Parts


def _cost(row: str, what: str, load: LoadOutcome, goal: Goal | None) -> Iterator[Result]:
    yield Result(row, f"{what}: server CPU", load.cpu_us, "us/request", goal=goal)
    yield Result(row, f"{what}: p50", load.percentile_us(0.5), "us")
    yield Result(row, f"{what}: p99", load.percentile_us(0.99), "us")


def _warm(server: ServingChild, plan: LoadPlan, path: Path) -> LoadOutcome:
    """The plan, after a tenth of it that does not count."""
    few = max(plan.requests // 10, plan.connections)
    send(server, LoadPlan(plan.path, plan.body, few, plan.connections, plan.h2), path)
    return send(server, plan, path)


def _records(count: int) -> bytes:
    return json.dumps({"records": [{"data": payload()}] * count}, separators=(",", ":")).encode()


def _create_classes(server: BenchServer) -> None:
    for klass in CLASSES:
        server.create(klass, durability=klass)


ROWS: dict[str, Row] = {
    "ceiling": ceiling,
    "write1": lone_write,
    "batches": batches,
    "diff": diffs,
    "watch": watches,
}

if __name__ == "__main__":
    sys.exit(main())

"""What is compared: the rows, and how one peer does one of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from topics.bench import raw
from topics.bench.appending import FRAME_BYTES
from topics.bench.bench import Bench
from topics.bench.compare.load import Plan
from topics.bench.compare.peer import Peer, ask, end
from topics.bench.measure import durations
from topics.bench.server_process import ServingChild, empty, program

LOAD = "topics.bench.compare.load"
OURS = "topics"


@dataclass(frozen=True)
class Comparison(Bench):
    """One run. Rows that are timed take `seconds` each."""

    seconds: float


@dataclass(frozen=True)
class Row:
    """One kind of work. `figure` names the number that a load program found."""

    name: str
    what: str
    unit: str
    figure: str
    plan: Callable[[Comparison], Plan]
    more_is_better: bool = True
    is_synced: bool = False
    needs_queue: bool = False
    fills: bool = False
    """Whether `HISTORY` is filled first."""


def _writes(connections: int, records: int = 1) -> Callable[[Comparison], Plan]:
    return lambda bench: Plan("write", bench.seconds, connections, records)


def _watch(watchers: int) -> Callable[[Comparison], Plan]:
    return lambda bench: Plan("watch", bench.seconds, watchers)


def _counted(kind: str, connections: int, full: int) -> Callable[[Comparison], Plan]:
    """A fixed number of records, a multiple of what a page and a claim take."""
    return lambda bench: Plan(
        kind, connections=connections, records=bench.count(full // 4000, least=1) * 4000
    )


def _latency(
    name: str, what: str, plan: Callable[[Comparison], Plan], *, is_synced: bool = False
) -> Row:
    return Row(name, what, "us", "p50_us", plan, more_is_better=False, is_synced=is_synced)


def _rate(
    name: str, what: str, plan: Callable[[Comparison], Plan], *, is_synced: bool = False
) -> Row:
    return Row(name, what, "records/s", "rate", plan, is_synced=is_synced)


ROWS = {
    row.name: row
    for row in (
        _latency("write1", "one client, one record a request: p50", _writes(1)),
        _rate("write16", "16 clients, one record a request", _writes(16)),
        _rate("write64", "64 clients, one record a request", _writes(64)),
        _rate("batch16", "16 clients, 100 records a request", _writes(16, 100)),
        _latency("sync1", "one client, synced: p50", _writes(1), is_synced=True),
        _rate("sync16", "16 clients, synced", _writes(16), is_synced=True),
        _rate("sync64", "64 clients, synced", _writes(64), is_synced=True),
        _rate("syncbatch16", "16 clients, 100 records, synced", _writes(16, 100), is_synced=True),
        Row("read", "read 1000 records a request", "records/s", "rate",
            _counted("read", 1, 100_000), fills=True),
        _latency("watch1", "write to delivery, 1 watcher: p50", _watch(1)),
        _latency("watch100", "write to delivery, 100 watchers: p50", _watch(100)),
        Row("queue", "50 workers, claim 8 and ack", "jobs/s", "rate",
            _counted("queue", 50, 40_000), needs_queue=True),
        Row("restart", "from kill -9 to the first page", "s", "seconds",
            _counted("fill", 1, 200_000), more_is_better=False),
    )
}  # fmt: skip


@dataclass
class Measured:
    """A row with the numbers of every peer, one a round. A peer that cannot do it has none."""

    row: Row
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, peer: str, value: float) -> None:
        self.values.setdefault(peer, []).append(value)

    def median(self, peer: str) -> float | None:
        return statistics.median(self.values[peer]) if self.values.get(peer) else None

    def ratio(self, ours: str, peer: str) -> float | None:
        """How many times better we are than the peer; below 1, the peer is better."""
        mine, theirs = self.median(ours), self.median(peer)
        if not mine or not theirs:
            return None
        return mine / theirs if self.row.more_is_better else theirs / mine


def one_round(bench: Comparison, peer: Peer, rows: list[Row]) -> Iterator[tuple[Row, float]]:
    """Every row on new servers: one for what is not synced, one for what is, one to kill."""
    for synced in (False, True):
        chosen = [row for row in rows if row.is_synced == synced and row.name != "restart"]
        chosen = [row for row in chosen if peer.dialect.has_queue or not row.needs_queue]
        if chosen:
            with bench.scratch() as path, peer.serving(path, synced=synced) as server:
                drive(peer.name, server, Plan("prepare", synced=synced))
                for row in chosen:
                    bench.say(f"{peer.name}: {row.what}")
                    yield row, _measure(bench, peer, server, row)
    for row in rows:
        if row.name == "restart":
            bench.say(f"{peer.name}: {row.what}")
            yield row, _restart_s(bench, peer, row)


def _measure(bench: Comparison, peer: Peer, server: ServingChild, row: Row) -> float:
    plan = row.plan(bench)
    if row.fills:
        drive(peer.name, server, Plan("fill", records=plan.records))
    return drive(peer.name, server, plan)[row.figure]


def _restart_s(bench: Comparison, peer: Peer, row: Row) -> float:
    """Fill, kill, start again: until the first page of the history is there."""
    with bench.scratch() as path:
        with peer.serving(path, synced=False) as server:
            drive(peer.name, server, Plan("prepare"))
            drive(peer.name, server, row.plan(bench))
            end(server.process)
        began = time.perf_counter()
        with peer.serving(path, synced=False) as server:
            while True:
                try:
                    dialect = peer.dialect()
                    ask(server.address, dialect, dialect.read(0))
                except (OSError, RuntimeError):
                    time.sleep(0.005)  # it listens, and is not yet ready
                else:
                    return time.perf_counter() - began


def drive(dialect: str, server: ServingChild, plan: Plan) -> dict[str, float]:
    """What the load program found."""
    with program(LOAD, dialect, server.address, plan.as_json()) as go_on:
        found: dict[str, float] = go_on()
        return found


def floor(bench: Comparison) -> dict[str, float]:
    """What this machine takes for the bare operations, in microseconds."""
    bench.say("the machine's floor")
    calls = bench.count(2000, least=10)
    with bench.scratch() as path:
        plain, synced = raw.RawFile(path, FRAME_BYTES), raw.RawFile(path, FRAME_BYTES, sync_s=0)
        found = {
            "write of one record": _p50_us(plain.write, calls),
            "write of one record with fdatasync": _p50_us(synced.write, calls),
        }
        plain.close()
        synced.close()
        with empty(path, "bare") as server:
            plan = Plan("write", bench.seconds)
            found["request with a fixed answer over loopback"] = drive(OURS, server, plan)["p50_us"]
    block = bytearray(os.urandom(1 << 20))
    found["copy of 1 MiB in memory"] = _p50_us(lambda: bytes(block), calls)
    return found


def _p50_us(work: Callable[[], object], calls: int) -> float:
    return statistics.median(durations(work, calls=calls)) * 1e6

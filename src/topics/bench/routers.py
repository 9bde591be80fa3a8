"""`topics bench routers`: how much later a copy is there, and what it adds to the log.

Method. One watcher stands at the source, one at the destination; what a router adds is the time
between the two arrivals of one record. Fan-out is judged by bytes: the log of a server grows by the
payload once, plus a few bytes for each destination.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from topics.bench.bench import Bench, Row, run
from topics.bench.measure import Result, at_most
from topics.bench.routers_watch import DEST, SOURCE
from topics.bench.server_process import BenchServer, driven, served

FAN_OUT = 100
RECORD = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    return run("routers", "Forwarding from topic to topic.", ROWS, argv)


def latency(bench: Bench) -> Iterator[Result]:
    """From visible in the source to visible in the destination."""
    writes = bench.count(2000, least=5)
    with bench.scratch() as path, served(path) as server:
        _route(server, "r", DEST)
        bench.say(f"forwarding latency, {writes} writes")
        found, spent = driven(server, "topics.bench.routers_watch", writes)
    added, whole = found["added_p50_us"] / 1e3, found["whole_p50_us"] / 1e3
    yield Result("latency", "router adds, p50", added, "ms", goal=at_most(0.3))
    yield Result("latency", "router adds, p99", found["added_p99_us"] / 1e3, "ms")
    yield Result("latency", "start of the write to the destination, p50", whole, "ms")
    what = "server CPU of a write, a copy and two deliveries"
    yield Result("latency", what, spent / writes * 1e6, "us")


def fan_out(bench: Bench) -> Iterator[Result]:
    """What one record costs in the log when a hundred destinations get it."""
    records = bench.count(200, least=5)
    data = "x" * (RECORD - 2)
    sizes = []
    for routers in (0, FAN_OUT):
        with bench.scratch() as path, served(path) as server:
            server.create(SOURCE)
            for number in range(routers):
                _route(server, f"r{number}", f"{DEST}{number}")
            bench.say(f"fan-out to {routers} destinations")
            before = _logged(server)
            server.fill(SOURCE, data, records, batch=1)
            for number in range(routers):
                _catch_up(server, f"{DEST}{number}", records)
            sizes.append((_logged(server) - before) / records)
    alone, spread = sizes
    yield Result(
        "fan-out",
        f"log bytes of a {RECORD:,} byte record with {FAN_OUT} destinations, in payloads",
        spread / RECORD,
        "payloads",
        goal=at_most(2),
        raw=alone / RECORD,
        raw_what="without routers",
    )
    yield Result("fan-out", "log bytes a copy adds", (spread - alone) / FAN_OUT, "bytes/copy")


def _route(server: BenchServer, name: str, dest: str) -> None:
    server.call("PUT", f"/v0/routers/{name}", {"source": SOURCE, "dest": dest})


def _catch_up(server: BenchServer, dest: str, records: int) -> None:
    found = server.call("GET", f"/v0/topics/{dest}")["head_seq"]
    if found != records:
        raise RuntimeError(f"{dest} has {found} of {records} records")


def _logged(server: BenchServer) -> int:
    found: int = server.call("GET", "/v0/metrics")["wal"]["bytes_written"]
    return found


ROWS: dict[str, Row] = {"latency": latency, "fan-out": fan_out}

if __name__ == "__main__":
    sys.exit(main())

"""`topics bench stalls`: how long a neighbour waits beside one large request, or beside upkeep.

Method. A server runs in one process. A neighbour in a second one writes a small record every few
milliseconds on a connection of its own, and a third one sends the large request. Each row prints
the longest wait of the neighbour from before the large request until after its answer, the most CPU
time that the server and its loop used during one wait, and how long the large request took. The row
`idle` has no large request: it shows what the machine adds. Where the wait is much longer than the
CPU time, the server waited for a core or for the disk. Where the CPU time is more than the loop's,
threads worked beside the loop; they delay it only while they keep the interpreter.

Nothing here passes or fails: a number that misses its goal is printed as it is.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from topics.bench.bench import Bench, Row, payload, run
from topics.bench.measure import Result, at_most, stopwatch
from topics.bench.server_process import (
    PATIENCE_S,
    BenchServer,
    connect,
    exchange,
    program,
    served,
)
from topics.storage import layout

LONGEST_MS = 50.0
"""What a neighbour may have to wait at most, whatever others ask for."""
TOPIC = "records"
RUNS = 500_000
"""Deleted records, each between two live ones."""
TAGS = 300_000
STAGE_TOPICS = 1_500_000
NEW_TOPICS = 50_000
BATCH = 10_000
SETTLE_S = 0.3
CHECKPOINT_BYTES = 65 << 20
"""What makes a checkpoint due. Smaller counts leave it as it is, or none would be due."""
ARROW = "application/vnd.apache.arrow.stream"

Work = Callable[[], object]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    return run("stalls", "The longest wait beside large requests.", ROWS, argv)


# What every row does


@contextmanager
def _server(bench: Bench, **settings: str) -> Iterator[tuple[BenchServer, Path]]:
    with bench.scratch() as path, served(path, TOPICS_MAX_TOPICS="0", **settings) as server:
        yield server, path


def _beside(bench: Bench, server: BenchServer, row: str, what: str, work: Work) -> Iterator[Result]:
    """The longest wait of a neighbour beside some work, and how long the work took."""
    bench.say(f"{row}: {what}")
    with program("topics.bench.stalls_neighbour", server.address, server.process.pid) as go_on:
        time.sleep(SETTLE_S)
        with stopwatch() as elapsed:
            work()
            took_s = elapsed()
        time.sleep(SETTLE_S)
        found = go_on()
    goal = at_most(LONGEST_MS)
    yield Result(row, f"{what}: longest wait", found["longest_ms"], "ms", goal=goal)
    yield Result(row, f"{what}: most CPU in a wait", found["longest_work_ms"], "ms")
    yield Result(row, f"{what}: of the loop alone", found["longest_loop_ms"], "ms", goal=goal)
    yield Result(row, f"{what}: the request itself", took_s * 1000, "ms")


def _fill(server: BenchServer, tags: Sequence[str], records: int) -> None:
    """Append so many small records, with these tags in turn."""
    size = min(BATCH, records)
    some = [{"data": payload(), "tag": tags[at % len(tags)]} for at in range(size)]
    body = json.dumps({"records": some}).encode()
    with closing(connect(server.address)) as connection:
        for _ in range(0, records, size):
            exchange(connection, "POST", f"/v0/topics/{TOPIC}?return_seqs=false", body)


def _fill_one_by_one(server: BenchServer, records: int) -> None:
    """Append so many small records, each with a tag of its own."""
    for start in range(0, records, BATCH):
        numbers = range(start, min(start + BATCH, records))
        some = [{"data": payload(), "tag": f"one-{at:07d}"} for at in numbers]
        server.call("POST", f"/v0/topics/{TOPIC}?return_seqs=false", {"records": some})


def _delete(server: BenchServer, **selector: object) -> Work:
    return lambda: server.call("POST", f"/v0/topics/{TOPIC}/delete", selector)


def _alternate(bench: Bench, server: BenchServer) -> int:
    """Records of which every second one is deleted; how many are left."""
    runs = bench.count(RUNS, least=10)
    bench.say(f"writing {2 * runs} records, deleting every second one")
    server.create(TOPIC)
    _fill(server, ["gone", "kept"], 2 * runs)
    _delete(server, match="gone")()
    return runs


def idle(bench: Bench) -> Iterator[Result]:
    """No large request at all."""
    with _server(bench) as (server, _):
        yield from _beside(
            bench, server, "idle", "nothing", lambda: time.sleep(0.1 if bench.is_trial else 5)
        )


# Deletes


def tags(bench: Bench) -> Iterator[Result]:
    """Deletes by tag: one tag on very many records, and very many tags."""
    runs, singles = bench.count(RUNS, least=10), bench.count(TAGS, least=10)
    with _server(bench) as (server, _):
        server.create(TOPIC)
        _fill(server, ["gone", "kept"], 2 * runs)
        what = f"delete of one tag on {runs} of {2 * runs} records"
        yield from _beside(bench, server, "tags", what, _delete(server, match="gone"))
    with _server(bench) as (server, _):
        server.create(TOPIC)
        _fill_one_by_one(server, singles)
        what = f"delete of {singles} tags"
        yield from _beside(bench, server, "tags", what, _delete(server, match="one-*"))


def position(bench: Bench) -> Iterator[Result]:
    """A delete by position over deleted runs."""
    with _server(bench) as (server, _):
        runs = _alternate(bench, server)
        what = f"delete before_seq over {runs} deleted runs"
        work = _delete(server, before_seq=2 * runs - 1)
        yield from _beside(bench, server, "position", what, work)


def both(bench: Bench) -> Iterator[Result]:
    """A delete by tag and position over deleted runs."""
    with _server(bench) as (server, _):
        runs = _alternate(bench, server)
        what = f"delete with match and before_seq over {runs} deleted runs"
        work = _delete(server, match="kept", before_seq=2 * runs - 1)
        yield from _beside(bench, server, "both", what, work)


# Reads


def plan(bench: Bench) -> Iterator[Result]:
    """A plan over deleted runs."""
    with _server(bench) as (server, _):
        runs = _alternate(bench, server)
        what = f"plan over {runs} deleted runs"
        path = f"/v0/topics/{TOPIC}/plan"
        ask = {"from_seq": 0, "to_seq": 2 * runs, "target_bytes": 1 << 20}
        yield from _beside(bench, server, "plan", what, lambda: server.call("POST", path, ask))


def diff(bench: Bench) -> Iterator[Result]:
    """A read that passes over everything."""
    with _server(bench) as (server, _):
        runs = _alternate(bench, server)
        what = f"diff whose match hits nothing over {runs} deleted runs"
        path = f"/v0/topics/{TOPIC}/diff"
        ask = {"from_seq": 0, "match": "nothing"}
        yield from _beside(bench, server, "diff", what, lambda: server.call("POST", path, ask))


def reads(bench: Bench) -> Iterator[Result]:
    """Pages of live records, and of records between deleted ones."""
    with _server(bench) as (server, _):
        records = 2 * bench.count(RUNS, least=10)
        server.create(TOPIC)
        _fill(server, ["gone", "kept"], records)
        what = f"all pages of {records} live records"
        yield from _beside(bench, server, "reads", what, lambda: _read_all(server))
        _delete(server, match="gone")()
        what = f"all pages of {records // 2} records, each between deleted ones"
        yield from _beside(bench, server, "reads", what, lambda: _read_all(server))


def _read_all(server: BenchServer) -> None:
    cursor, is_over = 0, False
    while not is_over:
        ask = {"from_seq": cursor, "limit": 10_000, "max_batch_bytes": 4 << 20}
        page = server.call("POST", f"/v0/topics/{TOPIC}/diff", ask)
        cursor, is_over = page["next_from_seq"], page["caught_up"]


# Upkeep


def flips(bench: Bench) -> Iterator[Result]:
    """A checkpoint that has to mark very many records in segments as deleted."""
    with bench.scratch() as path:
        runs = bench.count(RUNS, least=10) // 2
        with served(path) as server:
            server.create(TOPIC)
            _fill(server, ["gone", "kept"], 2 * runs)
        with served(path) as server:  # the stop has put everything into segments
            _delete(server, match="gone")()
            what = f"checkpoint with {runs} deletes to mark"
            work = _checkpoint(server, path, bench)
            yield from _beside(bench, server, "flips", what, work)


def recovery(bench: Bench) -> Iterator[Result]:
    """What upkeep does when a server was killed and comes back."""
    with bench.scratch() as path:
        with served(path) as server:
            runs = _alternate(bench, server)
            server.process.kill()
            server.process.wait()
        before = _snapshots(path)
        with served(path) as server:
            what = f"upkeep after the recovery of {runs} deleted runs"
            work = _until_snapshot(server, path, before, bench)
            yield from _beside(bench, server, "recovery", what, work)


def _snapshots(path: Path) -> set[str]:
    return {found.name for found in (path / "data" / layout.META).glob("snapshot.*.bin")}


def _checkpoint(server: BenchServer, path: Path, bench: Bench) -> Work:
    """Write so much that a checkpoint is due, and wait for its snapshot."""

    def work() -> None:
        before = _snapshots(path)
        filler = json.dumps({"records": [{"data": "x" * (1 << 19)}] * 2}).encode()
        for _ in range(1 if bench.is_trial else CHECKPOINT_BYTES >> 20):
            server.send("POST", "/v0/topics/filler?return_seqs=false", filler)
        _until_snapshot(server, path, before, bench)()

    return work


def _until_snapshot(server: BenchServer, path: Path, before: set[str], bench: Bench) -> Work:
    def work() -> None:
        end = time.monotonic() + (0.1 if bench.is_trial else PATIENCE_S)
        while _snapshots(path) <= before and time.monotonic() < end:
            if server.process.poll() is not None:
                raise RuntimeError("the server ended")
            time.sleep(0.05)

    return work


def stop(bench: Bench) -> Iterator[Result]:
    """How long a server with very many topics takes to stop."""
    topics = bench.count(NEW_TOPICS, least=10)
    with _server(bench) as (server, _):
        _stage(server, _stage_body(topics))
        _commit(server)
        bench.say(f"stopping with {topics} topics")
        with stopwatch() as elapsed:
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(PATIENCE_S)
            yield Result("stop", f"until the exit, {topics} topics", elapsed(), "s")


# Large bodies


def _stage_body(topics: int) -> bytes:
    names = (b'{"topic":"t%07d","data":1}' % at for at in range(topics))
    return b'{"records":[%b]}' % b",".join(names)


def _stage(server: BenchServer, body: bytes, **headers: str) -> int:
    return server.send("POST", "/v0/stages/bench/1/0/0", body, **headers)


def _commit(server: BenchServer) -> None:
    server.call("POST", "/v0/stages/bench/1/commit", {"parts": [[0, 0]]})


def stages(bench: Bench) -> Iterator[Result]:
    """Stages of very many topics, and a commit that makes them."""
    topics = bench.count(STAGE_TOPICS, least=10)
    with _server(bench) as (server, _):
        body = _stage_body(topics)
        what = f"stage of {topics} topics"
        yield from _beside(bench, server, "stages", what, lambda: _stage(server, body))
    topics = bench.count(NEW_TOPICS, least=10)
    with _server(bench) as (server, _):
        _stage(server, _stage_body(topics))
        what = f"commit into {topics} new topics"
        yield from _beside(bench, server, "stages", what, lambda: _commit(server))


def arrow(bench: Bench) -> Iterator[Result]:
    """The first request for Arrow, and a short stream that stands for very many rows."""
    with _server(bench) as (server, _):
        server.create(TOPIC)
        server.fill(TOPIC, payload(), 10)
        path = f"/v0/topics/{TOPIC}/records"
        work = partial(server.send, "GET", path, None, accept=ARROW)
        yield from _beside(bench, server, "arrow", "the first page as Arrow", work)
        rows = bench.count(6_000_000, least=10)
        bomb = _arrow_body(rows)
        what = f"a stage of {len(bomb)} bytes of Arrow for {rows} rows"
        headers = {"content-type": ARROW}
        yield from _beside(bench, server, "arrow", what, lambda: _stage(server, bomb, **headers))


def _arrow_body(rows: int) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - not part of the base installation

    table = pa.table({"topic": pa.repeat("t", rows), "data": pa.repeat("1", rows)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def dead_letter(bench: Bench) -> Iterator[Result]:
    """A name of 60 MB where the name of a topic belongs."""
    with _server(bench) as (server, _):
        name = b"x" * bench.count(60_000_000, least=10)
        body = b'{"type":"queue","dead_letter":"%b"}' % name
        what = f"a dead_letter of {len(name)} bytes"
        path = "/v0/topics/jobs"
        yield from _beside(
            bench, server, "dead-letter", what, lambda: server.send("PUT", path, body)
        )


ROWS: dict[str, Row] = {
    "idle": idle,
    "tags": tags,
    "position": position,
    "both": both,
    "plan": plan,
    "diff": diff,
    "reads": reads,
    "flips": flips,
    "recovery": recovery,
    "stages": stages,
    "arrow": arrow,
    "dead-letter": dead_letter,
    "stop": stop,
}

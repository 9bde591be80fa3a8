"""How many machine instructions the hot paths take, counted with callgrind.

    .venv/bin/python tools/instructions.py               measure and print beside the last entry
    .venv/bin/python tools/instructions.py --check       fail if a path takes more than it did
    .venv/bin/python tools/instructions.py --record WHY  add an entry to docs/instructions.json
    .venv/bin/python tools/instructions.py --json        the counts as JSON

Times of a small virtual machine move by ten percent and more from run to run; counts of
instructions hardly move. callgrind comes with Debian's package `valgrind`. About 20 s on two cores.

**What runs.** Two processes under callgrind: `topics serve`, asked over HTTP/1.1 by this process,
and a program that uses an embedded log. They start without counting, which is four times as fast.
Each path is done some times first, so that imports and caches are out of the way. Then a mark (a
call of `getppid`, which nothing else calls) lets callgrind write down the count so far, the path is
done `CALLS` times, and a second mark ends it. Waiting costs no instructions, and neither does the
disk.

**What is compared.** A count depends on the build of Python and on its libraries: another compiler
or another version of Python changes all of them. So every entry names its build, and `--check`
compares with the last entry of the same build, within `TOLERANCE`. On another build it compares
*ratios*: every run also counts a reference loop of plain Python, and a count divided by that of the
reference may exceed the last entry's by `ELSEWHERE`. The same code gave ratios of -9 % to +4 % on
Python 3.12 and 3.13 compared with 3.11, while the counts themselves differed by up to 19 %.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.client import HTTPResponse
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
HISTORY = ROOT / "docs/instructions.json"
TOLERANCE = 0.03
"""Five runs on a busy machine differed by at most 0.8 % in requests, by 1.5 % in the delivery to a
watcher, and not at all in embedded calls."""
ROUGH = {"delivery, a further watcher": 0.12}
"""The difference of two large counts, divided by 19: five runs differed by 5 %."""
ELSEWHERE = 0.2
PATIENCE_S = 300.0
RECORD = {"data": {"sensor": "t-114", "c": 21.5, "room": "kitchen", "unit": "celsius"}}
SMALL, LARGE = 200, 2200
"""Records in the logs to recover: the difference of two starts is what the records cost."""
STORED = 3000
PAGE = 1000
WATCHERS = 19
WINDOWS = 4
CALLS = {
    "reference": 50,
    "write": 15,
    "write 100": 4,
    "diff 1000": 2,
    "write, 1 watcher": 15,
    "write, 20 watchers": 8,
    "claim and ack": 10,
    "append 1": 50,
    "append 100": 5,
    "open small": 1,
    "open large": 1,
}
"""What is counted, and how often it is done between two marks. That is repeated `WINDOWS` times and
the lowest count is taken: what disturbs a window, such as a thread that wakes up, only adds."""
SLOWER = 10_000
WARM_UP = 12
DIFF_WARM_UP = 3
PATHS = {
    "lone write": "a write of one record over HTTP/1.1, class fsync",
    "batch, a record": "a write of 100 records, class fsync, divided by 100",
    "diff, a record": "a read of 1000 records from a segment, divided by 1000",
    "delivery, one watcher": "what one event stream adds to a lone write",
    "delivery, a further watcher": "what each of 19 more streams adds",
    "job": "a claim of one job and its ack",
    "append 1 embedded": "a call with one record, class disk",
    "append 100 embedded, a record": "a call with 100 records, class disk, divided by 100",
    "recovery, a record": "a longer log at the start, divided by its records",
}


@dataclass(frozen=True)
class Entry:
    """One line of the history."""

    date: str
    why: str
    build: str
    reference: int
    counts: Mapping[str, int]


# Counting


class Counted:
    """A program under callgrind, which writes a dump for each mark: the count since the last."""

    def __init__(self, program: str, folder: Path) -> None:
        self._out = folder / "callgrind.out"
        self._errors = folder / "errors"
        self.labels: list[str] = []
        command = [
            tool("valgrind"),
            *("--tool=callgrind", "--instr-atstart=no", "--dump-before=getppid", "-q"),
            f"--callgrind-out-file={self._out}",
            *(sys.executable, str(Path(__file__).resolve()), "--program", program, str(folder)),
        ]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdout is not None
        self._close()
        self._process.stdout.close()
        self._process.wait()

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def tell(self, word: str) -> str:
        """Give an order; returns the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        return answer or self.fail("it ended early")

    def fail(self, why: str) -> NoReturn:
        self._process.kill()
        raise SystemExit(f"instructions: {why}:\n{self._errors.read_text()}")

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def begin_counting(self) -> None:
        """Have callgrind count from now on.

        valgrind takes the order while the program computes. It could also interrupt a program that
        waits, but not on machines that forbid `ptrace`.
        """
        self.tell("spin")
        vgdb = [tool("vgdb"), f"--pid={self._process.pid}", "--max-invoke-ms=0"]
        order = [*vgdb, "instrumentation", "on"]
        done = subprocess.run(
            order, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode:
            self.fail(f"vgdb failed: {done.stderr}")
        self.tell("go")

    def counts(self) -> dict[str, int]:
        """How many instructions one call of each path took."""
        found: dict[str, list[int]] = {}
        for number, label in enumerate(self.labels, 1):
            if label:
                dump = Path(f"{self._out}.{number}").read_text()
                totals = re.search(r"^totals: (\d+)", dump, re.MULTILINE)
                assert totals is not None
                found.setdefault(label, []).append(int(totals[1]) // CALLS[label])
        return {label: min(counts) for label, counts in found.items()}


def collect() -> None:
    """Leave nothing to the collector: when it looks at every object depends on all that was."""
    gc.collect()
    gc.freeze()


def obey(order: str) -> None:
    """What a counted program does when it is told to."""
    if order == "spin\n":
        print("spinning", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            pass
        return
    if order == "begin\n":
        collect()
    if order in {"begin\n", "end\n"}:
        os.getppid()
    print("done", flush=True)


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=os.defpath)
    if found is None:
        raise SystemExit(f"instructions: {name} is missing; apt-get install valgrind")
    return found


def measure() -> tuple[int, dict[str, int]]:
    """The count of the reference loop, and that of every path."""
    with tempfile.TemporaryDirectory(prefix="topics-instructions-") as scratch:
        folders = {name: Path(scratch, name) for name in ("server", "embedded")}
        for folder in folders.values():
            folder.mkdir()
        _program("prepare", folders["server"])
        _program("prepare", folders["embedded"])
        results: dict[str, int] = {}
        failures: list[BaseException] = []

        def run(count: Callable[[Path], dict[str, int]], folder: Path) -> None:
            try:
                results.update(count(folder))
            except BaseException as error:
                failures.append(error)

        jobs = [
            threading.Thread(target=run, args=(_count_server, folders["server"])),
            threading.Thread(target=run, args=(_count_embedded, folders["embedded"])),
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        if failures:
            raise failures[0]
    return results["reference"], _paths(results)


def _paths(counted: Mapping[str, int]) -> dict[str, int]:
    alone, watched, crowded = (
        counted[name] for name in ("write", "write, 1 watcher", "write, 20 watchers")
    )
    found = {
        "lone write": alone,
        "batch, a record": counted["write 100"] // 100,
        "diff, a record": counted["diff 1000"] // PAGE,
        "delivery, one watcher": watched - alone,
        "delivery, a further watcher": (crowded - watched) // WATCHERS,
        "job": counted["claim and ack"],
        "append 1 embedded": counted["append 1"],
        "append 100 embedded, a record": counted["append 100"] // 100,
        "recovery, a record": (counted["open large"] - counted["open small"]) // (LARGE - SMALL),
    }
    assert found.keys() == PATHS.keys()
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}


def _program(name: str, folder: Path) -> None:
    command = [sys.executable, str(Path(__file__).resolve()), "--program", name, str(folder)]
    subprocess.run(command, env=_environment(), check=True)


# The embedded program


def _count_embedded(folder: Path) -> dict[str, int]:
    with Counted("embedded", folder) as program:
        program.begin_counting()
        program.labels = json.loads(program.tell("run"))
    return program.counts()


def _embedded(folder: Path) -> None:
    """Runs under callgrind; says at the end what each mark has ended."""
    import topics  # noqa: PLC0415
    from topics.testing import ManualClock  # noqa: PLC0415

    labels, clock = list[str](), ManualClock()

    def count(label: str, call: Callable[[], object], windows: int = WINDOWS) -> None:
        for _ in range(windows):
            collect()
            os.getppid()
            for _ in range(CALLS[label]):
                call()
            os.getppid()
            labels.extend(("", label))

    one, many = [RECORD], [RECORD] * 100
    with topics.open(folder / "appends", clock=clock) as log:  # syncs are due by the clock
        log.create("orders", durability="disk")
        for order in sys.stdin:
            if order == "run\n":
                break
            obey(order)
        for _ in range(WARM_UP):
            reference()
            log.append("orders", many)
            for _ in range(WARM_UP):
                log.append("orders", one)
        count("reference", reference)
        count("append 1", lambda: log.append("orders", one))
        count("append 100", lambda: log.append("orders", many))
    opened = [topics.open(folder / "warm", clock=clock)]
    count(
        "open small", lambda: opened.append(topics.open(folder / "small", clock=clock)), windows=1
    )
    count(
        "open large", lambda: opened.append(topics.open(folder / "large", clock=clock)), windows=1
    )
    print(json.dumps(labels), flush=True)
    os._exit(0)


def reference() -> int:
    """What programs in Python do all the time: calls, attributes, dicts, bytes, small numbers."""
    found: dict[bytes, list[int]] = {}
    for number in range(50):
        key = b"key %d" % (number % 7)
        found.setdefault(key, []).append(_Box(number).half())
    return sum(len(key) + len(values) for key, values in found.items())


class _Box:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def half(self) -> int:
        return self.value // 2


def _prepare(folder: Path) -> None:
    """Data directories, made by programs that die without closing them."""
    import topics  # noqa: PLC0415
    from topics.testing import ManualClock  # noqa: PLC0415

    with topics.open(folder / "data") as log:
        log.append("history", [RECORD] * STORED)
        log.checkpoint()
    for name, records in (("warm", SMALL), ("small", SMALL), ("large", LARGE)):
        log = topics.open(folder / name, clock=ManualClock())
        for _ in range(records // 100):
            log.append("orders", [RECORD] * 100)
    os._exit(0)


# The server


def _serve(folder: Path) -> None:
    """Runs under callgrind: `topics serve`, and a thread that marks when it is told to."""
    _put_off_timers()
    from topics.cli import main  # noqa: PLC0415

    def listen() -> None:
        for order in sys.stdin:
            # Threads hand over when they wait, not when the clock says so: callgrind makes
            # everything fifty times slower, and the clock would say so fifty times as often.
            sys.setswitchinterval(1.0)
            obey(order)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    os.environ |= {
        "TOPICS_DATA_DIR": str(folder / "data"),
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(folder / "port"),
        "TOPICS_WAL_SHARDS": "1",
    }
    sys.argv = ["topics", "serve"]
    main()


def _put_off_timers() -> None:
    """Let nothing happen only because time passes.

    Under callgrind everything takes fifty times as long, and on a busy machine longer still: what
    samples the load or looks after the log would run between any two requests.
    """
    import queue  # noqa: PLC0415

    import uvloop  # noqa: PLC0415

    plain: Callable[..., object] = uvloop.Loop.call_later

    def later(loop: uvloop.Loop, delay: float, *args: object, **options: object) -> object:
        return plain(loop, delay * SLOWER, *args, **options)

    def at(loop: uvloop.Loop, when: float, *args: object, **options: object) -> object:
        return later(loop, when - loop.time(), *args, **options)

    methods: dict[str, object] = {"call_later": later, "call_at": at}
    loop_class = type("SlowLoop", (uvloop.Loop,), methods)

    class SimpleQueue(queue.SimpleQueue[object]):
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            return super().get(block, None if timeout is None else timeout * SLOWER)

    run = uvloop.run
    uvloop.run = lambda main, **options: run(main, loop_factory=loop_class, **options)
    queue.__dict__["SimpleQueue"] = SimpleQueue


def _count_server(folder: Path) -> dict[str, int]:
    with Counted("server", folder) as server:

        def count(label: str, call: Callable[[], object], warm_up: int = WARM_UP) -> None:
            for _ in range(warm_up):
                call()
            for _ in range(WINDOWS):
                server.tell("begin")
                for _ in range(CALLS[label]):
                    call()
                server.tell("end")
                server.labels.extend(("", label))

        port = _port(folder / "port", server)
        server.begin_counting()
        _ask_everything(port, count)
    return server.counts()


def _ask_everything(port: int, count: Callable[..., None]) -> None:
    client = Client(port)
    client.ask("PUT", "/v0/topics/orders", {"durability": "fsync"})
    one, many = {"records": [RECORD]}, {"records": [RECORD] * 100}
    count("write", lambda: client.ask("POST", "/v0/topics/orders", one))
    count("write 100", lambda: client.ask("POST", "/v0/topics/orders", many))
    # Never the same range twice, which would be kept; but numbers of the same width.
    starts = iter(range(1000, 2000, 7))
    count(
        "diff 1000",
        lambda: client.ask(
            "POST", "/v0/topics/history/diff", {"from_seq": next(starts), "limit": PAGE}
        ),
        DIFF_WARM_UP,
    )
    streams: list[HTTPResponse] = []

    def watch() -> None:
        made = client.ask("POST", "/v0/watch", {"topics": {"orders": {"tail": True}}})
        streams.append(Client(port).send("GET", made["stream_url"]))
        _await_caught_up(streams[-1])

    def write_and_hear() -> None:
        client.ask("POST", "/v0/topics/orders", one)
        for stream in streams:
            _await_caught_up(stream)

    watch()
    count("write, 1 watcher", write_and_hear)
    for _ in range(WATCHERS):
        watch()
    count("write, 20 watchers", write_and_hear)
    client.ask("PUT", "/v0/topics/jobs", {"durability": "fsync", "type": "queue"})
    client.ask("POST", "/v0/topics/jobs", many)

    def work() -> None:
        claimed = client.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1})["claimed"]
        seqs = [job["$seq"] for job in claimed]
        client.ask("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": seqs})

    count("claim and ack", work)


def _await_caught_up(stream: HTTPResponse) -> None:
    while stream.readline() != b"event: caught-up\n":
        pass
    stream.readline()
    stream.readline()


def _port(port_file: Path, server: Counted) -> int:
    end = time.monotonic() + PATIENCE_S
    while not port_file.exists():
        if server.is_over or time.monotonic() > end:
            server.fail("the server did not start")
        time.sleep(0.1)
    port = int(port_file.read_text().rpartition(":")[2])
    while Client(port).send("GET", "/v0/ready").status != 200:
        time.sleep(0.1)
    return port


class Client:
    """One connection that is kept; each request is one packet."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def send(self, method: str, path: str, body: object = None) -> HTTPResponse:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + content)
        answer = HTTPResponse(self._socket, method=method)
        answer.begin()
        return answer

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self.send(method, path, body)
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"instructions: {method} {path}: {answer.status} {said!r}")
        answered: dict[str, Any] = json.loads(said)
        return answered


# The history


def build() -> str:
    """What a count depends on beside our own code: never compared across two of these."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    made = f"{' '.join(platform.python_build())}, {platform.python_compiler()}"
    # The C library chooses its copy loops by what the processor can do.
    machine = platform.machine() + ("+avx2" if " avx2" in _cpuinfo() else "")
    libraries = " ".join(f"{name} {version(name)}" for name in ("uvloop", "httptools", "msgspec"))
    return f"{python} ({made}), {machine}, {'-'.join(platform.libc_ver())}, {libraries}"


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def history() -> list[Entry]:
    return [Entry(**entry) for entry in json.loads(HISTORY.read_text())]


def record(entry: Entry) -> None:
    entries = [*history(), entry]
    HISTORY.write_text("[\n" + ",\n".join(json.dumps(asdict(each)) for each in entries) + "\n]\n")


def compared(now: Entry, entries: Sequence[Entry]) -> tuple[list[str], bool]:
    """A line for each path, and whether all are within bounds."""
    same = [entry for entry in entries if entry.build == now.build]
    last, scale, bound = (same or entries)[-1], 1.0, TOLERANCE
    said = [f"compared with {last.date}, {last.why}; at most {TOLERANCE:.0%} more is allowed"]
    if not same:
        scale, bound = now.reference / last.reference, ELSEWHERE
        said = [
            f"no entry is of this build, {now.build}: compared with {last.date}, {last.why}, in",
            f"relation to the reference loop ({now.reference} here, {last.reference} there); at "
            f"most {ELSEWHERE:.0%} more is allowed",
        ]
    good = True
    for name, count in now.counts.items():
        before = last.counts[name] * scale
        change = count / before - 1
        is_good = change <= max(bound, ROUGH.get(name, 0.0))
        good &= is_good
        said.append(
            f"{name:<30} {before:>10.0f} {count:>10} {change:>+8.1%}{'' if is_good else '  MORE'}"
        )
    return said, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--check", action="store_true", help="fail if a count has grown too much")
    parser.add_argument("--record", metavar="WHY", help="add an entry to the history")
    parser.add_argument("--program", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program:
        name, folder = asked.program
        {"prepare": _prepare, "embedded": _embedded, "server": _serve}[name](Path(folder))
        return 0
    counted, counts = measure()
    now = Entry(
        datetime.now(UTC).date().isoformat(), asked.record or "now", build(), counted, counts
    )
    said, is_good = compared(now, history())
    if asked.record:
        record(now)
    if asked.json:
        print(json.dumps(asdict(now), indent=2))
        return 0
    print("\n".join(said))
    if asked.check and not is_good:
        print("a path takes more instructions than it did. If that is worth it, say why:")
        print('.venv/bin/python tools/instructions.py --record "what the instructions buy"')
    return int(asked.check and not is_good)


if __name__ == "__main__":
    raise SystemExit(main())

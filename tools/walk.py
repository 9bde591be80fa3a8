"""Which functions of topics one operation passes, taken from the running program.

    .venv/bin/python tools/walk.py write          one walk
    .venv/bin/python tools/walk.py --all          all six
    .venv/bin/python tools/walk.py --write-docs   put them into docs/ARCHITECTURE.md
    .venv/bin/python tools/walk.py --check        fail if the page differs from the program

Each walk runs in a process of its own with a profile function on all its threads. The server walks
run `topics serve` on its real event loop, real files and real sockets; the client is a thread of
the same process that uses nothing of topics. Every operation is done some times first, so that
imports and caches do not show, then recorded some times; the list that most recordings agree on is
the walk.

A walk is a list of sections. A section is what one thread does without handing over: one callback
of the event loop, or what a thread of the log does between two waits. Sections are ordered by their
beginning: the sections of two threads overlap, and an order of single calls would change from run
to run. A function stands where the section passes it first. Comprehensions belong to the function
they are written in. Left out are functions of libraries and whatever a timer started, because that
depends on the clock and not on the operation.
"""

from __future__ import annotations

import argparse
import difflib
import http.client
import importlib.util
import json
import opcode
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/ARCHITECTURE.md"
BEGIN = "<!-- made by tools/walk.py --write-docs: begin -->"
END = "<!-- made by tools/walk.py --write-docs: end -->"
RENEW = "Renew it with .venv/bin/python tools/walk.py --write-docs"
WARM_UP = 12
RECORDED = 7
QUIET_S = 0.05
"""An operation is over when it has called no function of topics for so long."""
IDLE_S = 0.25
"""A server is idle when not even a timer has called a function of topics for so long. What samples
the load every 100 ms has stopped by then; the upkeep of every second fits in between."""
PATIENCE_S = 60.0
RECORD = {"data": {"sensor": "t-114", "c": 21.5}}
HISTORY = 2000


SLOWER = 100
_now_s = time.monotonic


# The walks, as the page tells them


@dataclass(frozen=True)
class Walk:
    """One operation: what the page says about it, and which modules begin it."""

    name: str
    title: str
    story: str
    only_under: tuple[str, ...] = ()
    """Left out is what no function of these modules called; empty means that all counts."""


WALKS = (
    Walk(
        "write",
        "A durable write",
        "A client sends one record over HTTP/1.1 to an idle server; the topic has the class "
        "`fsync`. The event loop parses the request, decides the write in memory and writes the "
        "frame to the log. The log's thread makes the sync, because a sync on the loop would stop "
        "all other requests. Then the loop applies the record, which makes it visible, and sends "
        "the ack: nobody can read a record that a power cut could still take.",
    ),
    Walk(
        "read",
        "A read of history",
        "A client asks for 1000 records that a checkpoint has moved to a segment. The loop looks "
        "up in memory which seqs are live and where their bytes are. A reader thread reads the "
        "file and verifies every frame, because a file may be slow or damaged. The loop splices "
        "the stored JSON into the answer.",
    ),
    Walk(
        "delivery",
        "A delivery",
        "One watcher holds an event stream open, and a record of another client has just become "
        "visible. The walk begins where the publication of the write tells of the change, and "
        "shows only what is done for the watcher. Streams of a topic that stand at the same seq "
        "are one group: the group finds the page, makes the event once and writes it to every "
        "member that is not behind. The writer never waits for a stream: a slow stream is left "
        "to read on from its own cursor.",
        only_under=("delivery.", "server.pump", "server.scheduler"),
    ),
    Walk(
        "claim",
        "A claim and its ack",
        "A worker claims one job of a queue and acknowledges it: two requests. The claim only "
        "changes memory, because after a restart every job that was not acknowledged can be "
        "claimed again. The ack deletes the job, and a delete is a change like a write: decided, "
        "logged, synced, applied.",
    ),
    Walk(
        "spark",
        "A Spark batch",
        'What Python does for `spark.read.format("topics")` against a server. The driver fixes '
        "the range and cuts it into partitions, so that every action on the DataFrame sees the "
        "same records. Each task gets a pickled copy of the reader and its partition, reads pages "
        "of Arrow batches through the client, and accounts for every seq of its range. Spark "
        "itself is left out: the functions are called as its workers call them.",
    ),
    Walk(
        "recovery",
        "A recovery",
        "A program died with one snapshot, one segment and 100 records in the log behind them; "
        "`topics.open` opens its directory. Everything is read and judged before anything on disk "
        "changes, so a start that is refused leaves the directory as it was. The facts of the log "
        "go through the same `apply` as when they were new.",
    ),
)


# Tracing


@dataclass(frozen=True)
class Call:
    """A function that was passed; `resumed` if it is a generator that went on."""

    module: str
    function: str
    resumed: bool


@dataclass(frozen=True)
class Section:
    """What one thread did in one go. `label` says of which part of a walk, if it has parts."""

    thread: str
    label: str
    calls: tuple[Call, ...]


_RESUME = opcode.opmap["RESUME"]
_GENERATORS = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_INSIDE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


class Tracer:
    """Notes every call of a function of topics while it is switched on."""

    def __init__(self, only_under: tuple[str, ...]) -> None:
        self._only_under = only_under
        self._names: dict[CodeType, tuple[str, str] | None] = {}
        self._packages: dict[str, str] = {}
        for package in ("topics", "pyspark_topics"):
            found = importlib.util.find_spec(package)
            assert found is not None
            assert found.origin is not None
            self._packages[package] = str(Path(found.origin).parent) + os.sep
        self._sections: list[_Noted] = []
        self._current: dict[int, _Noted] = {}
        self._timed_out: set[int] = set()
        self._on = False
        self._has_loop = False
        self._called_s = 0.0
        self._noted_s = 0.0

    def install(self, *, has_loop: bool) -> None:
        """On this thread, and on all that are started from now on.

        On a loop every call from outside of topics begins a section; elsewhere only a thread does.
        """
        self._has_loop = has_loop
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def wait_until_idle(self) -> None:
        self._called_s = _now_s()
        while _now_s() - self._called_s < IDLE_S:
            time.sleep(IDLE_S / 20)

    def recorded(self, operation: Callable[[], object], label: str = "") -> list[Section]:
        """The sections of one operation, in the order of their beginning."""
        self._sections, self._current = [], {}
        self._on = True
        operation()
        self._noted_s = _now_s()
        while _now_s() - self._noted_s < QUIET_S:
            time.sleep(QUIET_S / 5)
        self._on = False
        ordered: list[_Noted] = []
        for noted in self._sections:
            noted.take_place(ordered)
        sections = [noted.section(label) for noted in ordered]
        if self._only_under:  # what follows a write comes after its sync, which a thread makes
            threads = [section.thread for section in sections]
            del sections[: next(at for at, thread in enumerate(threads) if thread != threads[0])]
        return [section for section in sections if section.calls]

    def current(self) -> _Noted | None:
        """The section that this thread is in."""
        return self._current.get(threading.get_ident()) if self._on else None

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            self._note_wait(event, arg)
            return
        name = self._name(frame.f_code)
        if name is None:
            return
        self._called_s = _now_s()
        if not self._on or threading.get_ident() in self._timed_out:
            return
        depth, counts, origin = self._stack(frame)
        if origin is _TIMER:
            return
        self._noted_s = self._called_s
        ident = threading.get_ident()
        if ident not in self._current or (self._has_loop and not depth):
            thread = threading.current_thread()
            is_main = thread is threading.main_thread()
            # Without its number: which thread of a pool takes the work is a race.
            shown = "event loop" if is_main else f"thread {thread.name.rstrip('-_0123456789')}"
            self._current[ident] = _Noted(shown, origin)
            self._sections.append(self._current[ident])
        if counts:
            self._current[ident].calls.append(Call(*name, _is_resumed(frame)))

    def _note_wait(self, event: str, arg: object) -> None:
        """A thread that waited for its queue begins a section, or was woken by the clock."""
        if event not in {"c_return", "c_exception"} or not _is_wait(arg):
            return
        ident = threading.get_ident()
        if event == "c_return":
            self._timed_out.discard(ident)
            self._current.pop(ident, None)
        else:
            self._timed_out.add(ident)

    def _stack(self, frame: FrameType) -> tuple[int, bool, _Noted | None]:
        """How many functions of topics are below; whether the call counts; what scheduled it.

        The loop itself was started by functions of topics: they are below every callback and no
        part of it, so the search ends at the frame of the library that runs the loop.
        """
        depth, counts = -1, not self._only_under
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code is _SCHEDULED:
                return depth, counts, at.f_locals["origin"]
            if code.co_filename.endswith(("asyncio/runners.py", "uvloop/__init__.py")):
                break
            name = self._name(code)
            if name is not None:
                depth += 1
                counts = counts or name[0].startswith(self._only_under)
            at = at.f_back
        return depth, counts, None

    def _name(self, code: CodeType) -> tuple[str, str] | None:
        if code not in self._names:
            self._names[code] = self._named(code)
        return self._names[code]

    def _named(self, code: CodeType) -> tuple[str, str] | None:
        if code.co_name in _INSIDE:
            return None
        for package, folder in self._packages.items():
            if code.co_filename.startswith(folder):
                parts = code.co_filename[len(folder) :].removesuffix(".py").split(os.sep)
                parts = [part for part in parts if part != "__init__"]
                module = ".".join(parts if package == "topics" and parts else [package, *parts])
                return module, code.co_qualname.replace(".<locals>", "").replace("<lambda>", "λ")
        return None


class _Noted:
    """A section while it is recorded. `origin` is the section whose `call_soon` scheduled it."""

    def __init__(self, thread: str, origin: _Noted | None) -> None:
        self.thread = thread
        self.origin = origin
        self.calls: list[Call] = []

    def take_place(self, ordered: list[_Noted]) -> None:
        """Behind all others; but what the loop does next stands before what threads do meanwhile.

        Whether a thread wakes up before the next callback of the loop is a race.
        """
        at = len(ordered)
        if self.origin in ordered and self.origin.thread == self.thread:
            at = ordered.index(self.origin) + 1
            while at < len(ordered) and ordered[at].origin is not None:
                at += 1
        ordered.insert(at, self)

    def section(self, label: str) -> Section:
        """Each function once, where it is passed first; a generator that goes on is passed too."""
        calls: dict[tuple[str, str], Call] = {}
        for call in self.calls:
            calls.setdefault((call.module, call.function), call)
        return Section(self.thread, label, tuple(calls.values()))


_TIMER = _Noted("timer", None)


def _is_wait(called: object) -> bool:
    """Whether a function of C is the `get` of a queue between threads."""
    if getattr(called, "__name__", "") != "get":
        return False
    return isinstance(getattr(called, "__self__", None), SimpleQueue)


def _is_resumed(frame: FrameType) -> bool:
    code = frame.f_code
    if not code.co_flags & _GENERATORS:
        return False
    at = frame.f_lasti
    return not (code.co_code[at] == _RESUME and code.co_code[at + 1] & 3 == 0)


def _slow_clocks() -> None:
    """Tracing makes work slower, so the clocks that measure work run slower, or stand still.

    Else a short read would look like a long one, which has to give way to others, and each answer
    would tell of another time, whose text was made before or was not.
    """
    now, stopped_s, stopped_ns = time.monotonic, time.perf_counter(), time.perf_counter_ns()
    started = now()
    time.monotonic = lambda: started + (now() - started) / SLOWER
    time.perf_counter = lambda: stopped_s
    time.perf_counter_ns = lambda: stopped_ns


def _scheduled(origin: _Noted | None, callback: Callable[..., object], *args: object) -> object:
    return callback(*args)


_SCHEDULED = _scheduled.__code__


def _mark_callbacks(tracer: Tracer) -> None:
    """Let the loop of a server run every callback through a function that the tracer knows."""
    import uvloop  # noqa: PLC0415 - only server walks need it

    def marked(name: str, *, leading: int, by_timer: bool) -> Callable[..., object]:
        plain = getattr(uvloop.Loop, name)

        def call(loop: uvloop.Loop, *args: object, **options: object) -> object:
            origin = _TIMER if by_timer else tracer.current()
            return plain(loop, *args[:leading], _scheduled, origin, *args[leading:], **options)

        return call

    methods = {
        "call_soon": marked("call_soon", leading=0, by_timer=False),
        "call_soon_threadsafe": marked("call_soon_threadsafe", leading=0, by_timer=False),
        "call_later": marked("call_later", leading=1, by_timer=True),
        "call_at": marked("call_at", leading=1, by_timer=True),
    }
    loop_class = type("MarkedLoop", (uvloop.Loop,), methods)
    run = uvloop.run
    uvloop.run = lambda main, **options: run(main, loop_factory=loop_class, **options)


# A process per walk


def trace(name: str) -> list[Section]:
    """Trace one walk in this process and give the list that most recordings agree on."""
    walk = next(walk for walk in WALKS if walk.name == name)
    tracer = Tracer(walk.only_under)
    with tempfile.TemporaryDirectory(prefix="topics-walk-") as scratch:
        recordings: list[list[Section]] = []
        if name == "recovery":
            recordings = list(_recoveries(tracer, Path(scratch)))
        elif name == "spark":
            recordings = list(_batches(tracer, Path(scratch)))
        else:
            _serve(
                tracer, Path(scratch), lambda port: recordings.extend(_asked(tracer, name, port))
            )
    counted = Counter(map(tuple, recordings))
    agreed, times = counted.most_common(1)[0]
    if times <= len(recordings) // 2:
        raise SystemExit(
            f"walk {name}: {len(counted)} different lists in {len(recordings)} recordings:\n"
            + difference(*("\n".join(lines(each)) for each in [*counted][:2]))
        )
    return list(agreed)


def _serve(tracer: Tracer, scratch: Path, client: Callable[[int], None]) -> None:
    """Run `topics serve` on this thread while a client on another one works through its list."""
    _slow_clocks()
    from topics.cli import main  # noqa: PLC0415

    data, port_file = scratch / "data", scratch / "port"
    _fill(data)
    failures: list[BaseException] = []

    def use() -> None:
        try:
            client(_port(port_file))
        except BaseException as error:
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    os.environ |= {
        "TOPICS_DATA_DIR": str(data),
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_WAL_SHARDS": "1",
        "TOPICS_LOG": "error",
    }
    _mark_callbacks(tracer)
    tracer.install(has_loop=True)
    client_thread = threading.Thread(target=use)
    client_thread.start()
    sys.argv = ["topics", "serve"]
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    client_thread.join()
    if failures:
        raise failures[0]


def _fill(data: Path) -> None:
    """Records of `history` that only a segment has: the ring in memory is empty after a start."""
    import topics  # noqa: PLC0415

    with topics.open(data) as log:
        log.append("history", [RECORD] * HISTORY)
        log.checkpoint()


def _port(port_file: Path) -> int:
    end = _now_s() + PATIENCE_S
    while not port_file.exists():
        if _now_s() > end:
            raise SystemExit("walk: the server did not start")
        time.sleep(0.01)
    port = int(port_file.read_text().rpartition(":")[2])
    while True:
        if Client(port).send("GET", "/v0/ready").status == 200:
            return port
        time.sleep(0.01)


class Client:
    """One connection that is kept. Each request is one packet, as most clients send short ones."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def send(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + content)
        answer = http.client.HTTPResponse(self._socket, method=method)
        answer.begin()
        return answer

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self.send(method, path, body)
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"walk: {method} {path} was answered with {answer.status}: {said!r}")
        answered: dict[str, Any] = json.loads(said)
        return answered


def _asked(tracer: Tracer, name: str, port: int) -> Iterator[list[Section]]:
    client = Client(port)
    steps = {"write": _write, "read": _read, "delivery": _delivery, "claim": _claim}[name](
        client, port
    )
    for at in range(WARM_UP + RECORDED):
        sections = []
        if at >= WARM_UP:
            tracer.wait_until_idle()
        for label, operation in steps:
            sections += tracer.recorded(operation, label)
        if at >= WARM_UP:
            yield sections


Steps = list[tuple[str, Callable[[], object]]]


def _write(client: Client, port: int) -> Steps:
    client.ask("PUT", "/v0/topics/orders", {"durability": "fsync"})
    return [("", lambda: client.ask("POST", "/v0/topics/orders", {"records": [RECORD]}))]


def _read(client: Client, port: int) -> Steps:
    at = iter(range(100, 999))

    def ask() -> None:
        # Each time another range: two equal reads in a row would share a page in memory. But always
        # of three digits: the server recognises a head that is the same as the one before.
        body = {"from_seq": next(at), "limit": 1000}
        assert len(client.ask("POST", "/v0/topics/history/diff", body)["records"]) == 1000

    return [("", ask)]


def _delivery(client: Client, port: int) -> Steps:
    client.ask("PUT", "/v0/topics/orders", {"durability": "fsync"})
    watch = client.ask("POST", "/v0/watch", {"topics": {"orders": {"tail": True}}})
    stream = Client(port).send("GET", watch["stream_url"])

    def write_and_hear() -> None:
        client.ask("POST", "/v0/topics/orders", {"records": [RECORD]})
        while stream.readline() != b"event: caught-up\n":
            pass

    while stream.readline() != b"event: caught-up\n":
        pass
    return [("", write_and_hear)]


def _claim(client: Client, port: int) -> Steps:
    client.ask("PUT", "/v0/topics/jobs", {"durability": "fsync", "type": "queue"})
    client.ask("POST", "/v0/topics/jobs", {"records": [RECORD] * 100})
    held: list[int] = []

    def claim() -> None:
        answer = client.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1})
        held[:] = [job["$seq"] for job in answer["claimed"]]

    def ack() -> None:
        answer = client.ask("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": held})
        assert answer["acked"] == 1

    return [("claim", claim), ("ack", ack)]


def _batches(tracer: Tracer, scratch: Path) -> Iterator[list[Section]]:
    """Against a server in another process; reader and partitions are pickled as Spark does it."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    from pyspark_topics import DefaultSource  # noqa: PLC0415

    data, port_file = scratch / "data", scratch / "port"
    _fill(data)
    settings = {"TOPICS_DATA_DIR": str(data), "TOPICS_PORT": "0", "TOPICS_LOG": "error"}
    settings["TOPICS_PORT_FILE"] = str(port_file)
    command = [sys.executable, "-m", "topics.cli", "serve"]
    with subprocess.Popen(command, env=os.environ | settings) as server:
        try:
            url = f"http://127.0.0.1:{_port(port_file)}"
            source = DefaultSource({"url": url, "subscribe": "history"})
            schema, carried = StructType(), list[bytes]()
            for column in source.schema().split(", "):
                name, spelled = column.split()
                schema.add(name, {"bigint": "long"}.get(spelled, spelled))

            def drive() -> None:
                reader = source.reader(schema)
                carried[:] = [pickle.dumps((reader, part)) for part in reader.partitions()]

            def work() -> None:
                reader, partition = pickle.loads(carried[0])
                assert sum(batch.num_rows for batch in reader.read(partition)) == HISTORY

            tracer.install(has_loop=False)
            for at in range(WARM_UP + RECORDED):
                sections = tracer.recorded(drive, "driver") + tracer.recorded(work, "task")
                if at >= WARM_UP:
                    yield sections
        finally:
            sys.setprofile(None)
            server.terminate()


def _recoveries(tracer: Tracer, scratch: Path) -> Iterator[list[Section]]:
    import topics  # noqa: PLC0415

    tracer.install(has_loop=False)
    for at in range(WARM_UP + RECORDED):
        data = scratch / str(at)
        if not os.fork():  # a program that dies: it closes nothing
            try:
                log = topics.open(data)
                log.append("orders", [RECORD] * 1000)
                log.checkpoint()
                for _ in range(10):
                    log.append("orders", [RECORD] * 10)
                os._exit(0)
            finally:
                os._exit(1)
        if os.wait()[1]:
            raise SystemExit("walk: the program that was to die failed")
        opened: list[topics.Log] = []
        sections = tracer.recorded(lambda: opened.append(topics.open(data)))  # noqa: B023
        opened[0].close()
        if at >= WARM_UP:
            yield sections
    sys.setprofile(None)


# Printing


def walked(name: str) -> list[Section]:
    """Trace one walk in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--trace", name]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"walk {name} failed:\n{done.stdout}{done.stderr}")
    return [
        Section(thread, label, tuple(Call(*call) for call in calls))
        for thread, label, calls in json.loads(done.stdout.splitlines()[-1])
    ]


def count(sections: Sequence[Section]) -> str:
    passed = {(call.module, call.function) for section in sections for call in section.calls}
    modules = {module for module, _ in passed}
    handed = len(sections) - len({section.label for section in sections})
    ways = f"{handed} hand-over{'' if handed == 1 else 's'}" if handed else "no hand-over"
    return f"{len(passed)} functions in {len(modules)} modules, {ways}"


def lines(sections: Sequence[Section], *, by_module: bool = False) -> Iterator[str]:
    """A paragraph for each section, a line for each module when the walk enters it.

    `by_module` gives each module one line in a section, where the walk enters it first: a long
    walk is in and out of its modules all the time.
    """
    for at, section in enumerate(sections):
        yield from _heading(section, sections[at - 1] if at else None)
        entered: list[tuple[str, list[str]]] = []
        for call in section.calls:
            found = next((e for e in reversed(entered) if e[0] == call.module), None)
            if found is None or not (by_module or found is entered[-1]):
                found = call.module, []
                entered.append(found)
            found[1].append(f"↩{call.function}" if call.resumed else call.function)
        for module, names in entered:
            yield from _wrapped(module, names)


def _heading(section: Section, before: Section | None) -> Iterator[str]:
    if before is not None:
        yield ""
    if section.label and (before is None or before.label != section.label):
        yield f"{section.label}:"
    elif before is not None:
        yield f"→ {section.thread}"


def _wrapped(module: str, names: list[str]) -> Iterator[str]:
    line = f"  {module:<30}"
    for name in names:
        if len(line) + len(name) > 99 and line.strip():
            yield line.rstrip()
            line = " " * 32
        line += f" {name}"
    yield line.rstrip()


def printed(walk: Walk, sections: Sequence[Section]) -> str:
    return f"{walk.title}: {count(sections)}\n\n" + "\n".join(lines(sections)) + "\n"


def part_of(walk: Walk) -> str:
    """What the page says of one walk."""
    sections = walked(walk.name)
    shown = "\n".join(lines(sections, by_module=True))
    return f"### {walk.title}\n\n{walk.story}\n\n{count(sections)}:\n\n```text\n{shown}\n```"


def with_walks(page: str) -> str:
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise SystemExit(f"walk: {PAGE} has no markers {BEGIN} and {END}")
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(part_of, WALKS))
    return before + "\n\n".join([BEGIN, *parts, END]) + after


def difference(before: str, after: str) -> str:
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walks", nargs="*", help=", ".join(walk.name for walk in WALKS))
    parser.add_argument("--all", action="store_true", help="print all walks")
    parser.add_argument("--write-docs", action="store_true", help="put the walks into the page")
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.trace:
        found = [
            [section.thread, section.label, [list(vars(call).values()) for call in section.calls]]
            for section in trace(asked.trace)
        ]
        print(json.dumps(found))
        return 0
    if asked.write_docs or asked.check:
        page = PAGE.read_text()
        made = with_walks(page)
        if asked.write_docs:
            PAGE.write_text(made)
            return 0
        if made != page:
            print(difference(page, made))
            print(f"{PAGE.name} differs from the program. {RENEW}")
        return int(made != page)
    chosen = [walk for walk in WALKS if asked.all or walk.name in asked.walks]
    if not chosen or {*asked.walks} - {walk.name for walk in WALKS}:
        parser.error("name a walk, or --all")
    for walk in chosen:
        print(printed(walk, walked(walk.name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

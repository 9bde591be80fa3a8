"""Lives and cycles: start, judge, load, kill, and again; then say what was done and found.

A *life* is a fresh directory with actors of its own, and lasts some cycles: it keeps what has to be
compared small, and makes a failure short to replay. The seed of a life decides what its actors do,
its settings, and when and how its server dies. The moments themselves belong to the machine: the
same seed gives the same plan, not the same interleaving.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from topics.storage.crashpoints import NAMES
from topics.torture.book import Actor, Hand, Sightings, Weather
from topics.torture.calls import Client, Failed, Gone, Refused
from topics.torture.drops import Dropper
from topics.torture.epochs import TARGETS, SinkActor
from topics.torture.jobs import QueueActor
from topics.torture.readers import Readers
from topics.torture.routes import DESTS, SOURCE, RouterActor
from topics.torture.server import PATIENCE_S, Nursery, Stuck, TorturedServer
from topics.torture.weather import Ballast, FakeClock, small_disk
from topics.torture.writers import Expiring, LogWriter, WriterGroup

CYCLES_PER_LIFE = 20
AT_WORK = 4
"""Actors that load the server in one cycle: few enough that each gets something done."""
NEEDED = {
    "topic": Dropper,
    "stage": SinkActor,
    "fwd": RouterActor,
    "evict": Expiring,
    "drop": LogWriter,
}
"""The actors that bring a server to the crash points of an area; any actor does for the others."""
OFTEN = ("wal", "stage", "fwd")
"""Areas whose points are passed many times a second."""
POINT_PATIENCE_S = 0.35
"""How long a load may run until its server reaches the crash point it was told to die at."""


class Broken(Exception):
    """The server broke a promise, or died by itself."""


@dataclass
class Totals:
    """Figures of a whole run."""

    seed: int
    cycles: int = 0
    lives: int = 0
    acked: int = 0
    seen: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    jumps: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "cycles": self.cycles,
            "lives": self.lives,
            "acked": self.acked,
            "records_seen": self.seen,
            "ends": dict(self.ends),
            "clock_jumps": self.jumps,
            "points_reached": dict(sorted(self.points.items())),
            "points_never_reached": sorted(NAMES - self.points.keys()),
            "seconds": round(self.seconds, 1),
            "losses": 0,
        }


@dataclass(eq=False)
class TortureFailure(Exception):
    """What was found, and how to see it again."""

    seed: int
    cycle: int
    end: str
    complaint: str
    directory: Path
    flags: str = ""

    @property
    def command(self) -> str:
        return f"topics torture --seed {self.seed} --cycles {CYCLES_PER_LIFE}{self.flags}"

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "cycle": self.cycle,
            "end": self.end,
            "complaint": self.complaint,
            "directory": str(self.directory),
            "again": self.command,
            "losses": 1,
        }

    def __str__(self) -> str:
        return (
            f"cycle {self.cycle} of the life with seed {self.seed}, after {self.end}:\n"
            f"{self.complaint}\nthe directory is kept: {self.directory}\n"
            f"again: {self.command}"
        )


@dataclass(frozen=True)
class TorturePlan:
    """What a run is asked for."""

    cycles: int
    seed: int
    directory: Path
    ballast: Ballast | None = None
    """With it, the disk runs full now and then."""
    clock: FakeClock | None = None
    """With it, the servers' clock jumps."""
    say: Callable[[str], None] = lambda line: None

    @property
    def weather(self) -> Weather:
        return Weather(self.clock is not None, self.ballast is not None)

    @property
    def flags(self) -> str:
        """What to add to a command for the same weather."""
        full = " --disk-full" if self.ballast is not None else ""
        return full + (" --clock-jumps" if self.clock is not None else "")


def torture(plan: TorturePlan, nursery: Nursery) -> Totals:
    """Run all cycles; raises `TortureFailure` at the first thing that is wrong."""
    totals, started = Totals(plan.seed), time.monotonic()
    points = sorted(NAMES)
    Random(plan.seed).shuffle(points)
    while totals.cycles < plan.cycles:
        seed = plan.seed + totals.lives
        root = plan.directory / f"life-{seed}"
        root.mkdir(parents=True)
        life = ServerLives(plan, seed, TorturedServer(nursery, root), points, totals)
        life.live(min(CYCLES_PER_LIFE, plan.cycles - totals.cycles))
        totals.lives += 1
        shutil.rmtree(root)
    totals.seconds = time.monotonic() - started
    return totals


def hold(
    *,
    cycles: int,
    seed: int,
    directory: Path | None = None,
    disk_full: bool = False,
    clock_jumps: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Totals:
    """Torture servers; raises `TortureFailure` with the directory of the failed life kept.

    Everything happens in a new folder inside `directory`, which is where the disk to be tested is.
    """
    base = Path(tempfile.mkdtemp(prefix="topics-torture-", dir=directory))
    with ExitStack() as stack:
        tidying = stack.enter_context(ExitStack())
        tidying.callback(shutil.rmtree, base, ignore_errors=True)
        where, ballast, clock = base, None, None
        if disk_full:
            where = stack.enter_context(small_disk(base / "disk"))
            ballast = Ballast(where)
        if clock_jumps:
            clock = FakeClock(base)
        nursery = stack.enter_context(Nursery({} if clock is None else clock.env))
        try:
            return torture(TorturePlan(cycles, seed, where, ballast, clock, say), nursery)
        except TortureFailure as failure:
            tidying.pop_all()
            if ballast is None:
                raise
            # The small disk goes; what was on it must not.
            kept = base / failure.directory.name
            shutil.copytree(failure.directory, kept)
            raise dataclasses.replace(failure, directory=kept) from failure


def cast(sightings: Sightings, weather: Weather, rng: Random) -> list[Actor]:
    """All actors of a life."""
    classes = ("ephemeral", "memory", "disk", "fsync")
    writers = [LogWriter(c, cap=0, sightings=sightings, weather=weather) for c in classes]
    writers += [LogWriter(c, cap=40, sightings=sightings, weather=weather) for c in classes[2:]]
    group = WriterGroup("fsync", sightings)
    readable = [*(w.name for w in writers), group.name, SOURCE, *DESTS, *TARGETS]
    return [
        *writers,
        group,
        Expiring("disk", weather),
        QueueActor("disk", leases_durable=rng.random() < 0.5, weather=weather),
        QueueActor("fsync", leases_durable=rng.random() < 0.5, weather=weather),
        RouterActor(rng.choice(("disk", "fsync")), sightings),
        SinkActor(sightings, weather),
        Dropper(),
        Readers(readable, sightings),
    ]


class ServerLives:
    """One directory and what happens to it."""

    def __init__(
        self,
        plan: TorturePlan,
        seed: int,
        server: TorturedServer,
        points: list[str],
        totals: Totals,
    ) -> None:
        self._plan = plan
        self._seed = seed
        self._server = server
        self._points = points
        self._totals = totals
        self._rng = Random(seed)
        self._sightings = Sightings()
        self._actors = cast(self._sightings, plan.weather, self._rng)
        self._at_work: list[Actor] = []
        self._unjudged: list[Actor] = []
        self._end = "its birth"
        self._was_killed = False
        self._cycle = 0

    def live(self, cycles: int) -> None:
        """So many cycles, and a last look at what is left."""
        try:
            for _ in range(cycles):
                self._cycle += 1
                self._one_cycle()
                self._totals.cycles += 1
                self._progress()
            self._last_look()
        except (Broken, Stuck, Refused, AssertionError) as error:
            raise self._failure(str(error)) from error
        finally:
            self._server.kill()
        self._totals.acked += sum(actor.acked for actor in self._actors)
        self._totals.seen += self._sightings.count

    def _failure(self, complaint: str) -> TortureFailure:
        words = self._server.words
        return TortureFailure(
            self._seed,
            self._cycle,
            self._end,
            f"{complaint}\nthe server's last words:\n{words}",
            self._server.root,
            self._plan.flags,
        )

    def _progress(self) -> None:
        acked = self._totals.acked + sum(actor.acked for actor in self._actors)
        self._plan.say(
            f"{self._totals.cycles}/{self._plan.cycles} cycles, {acked} calls answered, "
            f"{len(self._totals.points)} of {len(NAMES)} crash points, no loss"
        )

    # One cycle

    def _one_cycle(self) -> None:
        point = self._choose_point()
        self._was_killed = False
        try:
            api = self._start(point)
            try:
                workers = self._choose_workers(point)
                self._judge(api, self._suspects(workers), restarted=True)
                self._at_work = workers
                self._unjudged = list(workers)
                self._load(api, point)
            finally:
                api.close()
        except Gone as gone:
            # It reached its crash point while it started or was judged. Or did it?
            if point is None or self._server.wait() is None:
                raise Broken(
                    f"an answer is missing, and nobody killed the server: {gone}"
                ) from gone
        self._note_end(point)

    def _choose_point(self) -> str | None:
        """Where this cycle's server dies by itself, one point after the other; None is a kill."""
        awaits_full_disk = self._plan.ballast is not None and not self._totals.ends["full disk"]
        if self._rng.random() > 0.55 or awaits_full_disk:
            return None
        name = self._points.pop(0)
        self._points.append(name)
        passes = (1, 2, 3, 7, 20) if name.partition(".")[0] in OFTEN else (1,)
        return f"{name}:{self._rng.choice(passes)}"

    def _start(self, point: str | None) -> Client:
        if self._plan.clock is not None:
            self._totals.jumps += 1
            self._plan.clock.jump(self._rng)
        self._server.launch(shards=self._rng.choice((1, 1, 2, 3)), crash_at=point)
        api = Client(self._server.address())
        self._server.wait_ready(api.is_ready)
        return api

    def _choose_workers(self, point: str | None) -> list[Actor]:
        """The actors of this cycle, among them one that brings the server to its crash point."""
        needed = NEEDED.get((point or "").partition(".")[0])
        others = self._rng.sample(self._actors, len(self._actors))
        others.sort(key=lambda actor: needed is None or not isinstance(actor, needed))
        return others[:AT_WORK]

    def _suspects(self, workers: list[Actor]) -> list[Actor]:
        """The actors whose topics were changed since they were checked, or will be changed."""
        return self._unjudged + [actor for actor in workers if actor not in self._unjudged]

    def _judge(self, api: Client, suspects: list[Actor], *, restarted: bool) -> None:
        for actor in suspects:
            complaints = list(actor.judge(api, restarted=restarted))
            if complaints:
                raise Broken("\n".join(complaints[:20]))

    def _load(self, api: Client, point: str | None) -> None:
        is_first = not self._totals.ends["full disk"]
        if self._plan.ballast is not None and (is_first or self._rng.random() < 0.5):
            self._run_out_of_space(api, self._plan.ballast)
        load = self._begin_load(api)
        try:
            self._server.wait(POINT_PATIENCE_S if point else self._rng.uniform(0.02, 0.2))
            if self._plan.clock is not None:
                self._plan.clock.jump(self._rng)
                self._server.wait(0.1)
            if point is not None or self._rng.random() < 0.2:
                # Many steps belong to a stop; a kill may come anywhere inside it.
                self._server.terminate()
                self._server.wait(self._rng.choice((0.0, 0.05, 0.3, PATIENCE_S)))
        finally:
            self._was_killed = self._server.kill()
            load.join()

    def _begin_load(self, api: Client) -> LoadThreads:
        for actor in self._at_work:
            actor.prepare(api, self._rng)
        hands = [hand for actor in self._at_work for hand in actor.hands()]
        load = LoadThreads(hands, self._server.address(), self._rng)
        load.may_fail = self._plan.ballast is not None
        load.start()
        return load

    def _run_out_of_space(self, api: Client, ballast: Ballast) -> None:
        """A full disk refuses writes and nothing else, and heals by itself."""
        load = self._begin_load(api)
        try:
            self._server.wait(self._rng.uniform(0.0, 0.1))
            while self._server.is_running and not load.has_failed:
                ballast.fill()
                self._server.wait(0.02)
            self._totals.ends["full disk"] += 1
        finally:
            load.join()
        try:
            self._judge(api, self._at_work, restarted=False)
        finally:
            ballast.drop()
        self._server.wait_ready(api.is_ready)
        self._judge(api, self._at_work, restarted=False)

    def _note_end(self, point: str | None) -> None:
        code = self._server.wait()
        if code not in (-signal.SIGKILL, 0):
            raise Broken(f"the server ended by itself with {code}")
        name = (point or "").rpartition(":")[0]
        if code == 0:
            self._end = "a clean stop"
        elif point is not None and not self._was_killed:
            self._end = f"its crash point {point}"
            self._totals.points[name] += 1
        else:
            self._end = "SIGKILL"
        self._totals.ends[self._end.partition(" point")[0]] += 1

    def _last_look(self) -> None:
        api = self._start(None)
        try:
            self._judge(api, self._actors, restarted=True)
        except Gone as gone:
            raise Broken(f"the server went away by itself: {gone}") from gone
        finally:
            api.close()


class LoadThreads:
    """All hands at work, each on a thread and a connection of its own."""

    def __init__(self, hands: list[Hand], address: tuple[str, int], rng: Random) -> None:
        self.may_fail = False
        self.has_failed = False
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(hand, Client(address), Random(rng.random())),
                daemon=True,
            )
            for hand in hands
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _work(self, hand: Hand, api: Client, rng: Random) -> None:
        try:
            while not self._stop.is_set():
                try:
                    hand(api, rng)
                except Refused as refused:
                    if refused.status not in (429, 503):
                        raise
                    self._stop.wait(0.01)
        except Failed as error:
            self.has_failed = True
            if not self.may_fail:
                self._errors.append(error)
        except Gone:
            return
        except BaseException as error:
            self._errors.append(error)
        finally:
            api.close()

    def join(self) -> None:
        """Wait for all hands; what went wrong with one of them is raised here."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for error in self._errors:
            raise Broken(f"an actor failed: {error!r}") from error

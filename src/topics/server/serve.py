"""One server process: settings, lock, bind, port file, recovery, serving, drain, exit.

The port is bound before recovery, so that a client that waits for the server sees that it is alive
and how far its recovery is. The directory is locked before the port is bound, so that two servers
on one directory cannot both be reachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from topics.delivery.live import LiveDelivery
from topics.delivery.loop_budget import LoopTimers
from topics.engine.clock import Clock, SystemClock
from topics.engine.effects import Io, Op
from topics.engine.engine import Engine
from topics.engine.recovery import directory
from topics.engine.recovery.opening import Opening, open_entered
from topics.errors import Internal, InvalidSetting, LogFailed, RefusedToOpen, TopicsError
from topics.http.access_log import AccessLog
from topics.http.api.metrics import collect
from topics.http.api.service import HttpLimits, Service
from topics.http.host_check import HostCheck
from topics.http.limits import Limits, head_bytes
from topics.http.listener import Listener, load_certificate, tls_context
from topics.server.collector import GarbageCollector
from topics.server.config import ServerConfig, TlsFiles
from topics.server.disk_room import measure
from topics.server.driver import Driver
from topics.server.pump import Pump
from topics.server.routers import RouterPump
from topics.server.wiring import build_app
from topics.storage.fs import RealFs, is_open_to_all
from topics.storage.wal.grouped import GroupedCommitter
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard

_log = logging.getLogger("topics.server")

DRAIN_SECONDS = 10.0
UPKEEP_SECONDS = 1.0
READ_THREADS = 4
MAX_SHARDS = 8
EXIT_REFUSED = 4
OWN_FILES = 512
"""Kept for the log, whatever number of clients connects: a log without a file to go on with
refuses writes."""
NO_LIMIT = 1_000_000
SWITCH_SECONDS = 0.0005
"""How long a thread that computes may keep the interpreter from the loop. Python's own 5 ms would
be most of the latency of every request beside a bulk read or a checkpoint."""


class _GaveUp(Exception):
    """Recovery ends early because the server is to stop."""


class Server:
    """Everything that lives as long as the process."""

    def __init__(self, config: ServerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._data_dir = os.path.abspath(config.data_dir)
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(READ_THREADS, "topics-read")
        self._maintenance_pool = ThreadPoolExecutor(1, "topics-maintenance")
        self._driver = Driver(self._loop, self._readers)
        self._shards = config.engine.wal_shards or min(os.cpu_count() or 1, MAX_SHARDS)
        # Never less than one body: such a limit would refuse it for ever.
        most_request_bytes = config.max_request_bytes and max(
            config.max_request_bytes, config.max_body_bytes
        )
        self.service = Service(
            version=version("topics"),
            clock=self._clock,
            keyring=config.keyring,
            host_check=HostCheck(
                hosts=_listed(config.allowed_hosts), origins=_listed(config.cors_origins)
            ),
            limits=HttpLimits(
                max_watch_sessions=config.max_watch_sessions,
                max_sse_connections=config.max_sse_connections,
                max_sse_connections_per_key=config.max_sse_connections_per_key,
                max_inflight_per_key=config.max_inflight_per_key,
                max_watch_topics=config.max_watch_topics,
                max_body_bytes=config.max_body_bytes,
                max_request_bytes=most_request_bytes,
                min_heartbeat_ms=config.min_heartbeat_ms,
            ),
            runner=self._driver,
            probe_auth=config.probe_auth,
            shards=self._shards,
            max_claim=config.max_claim,
            started_ms=self._clock.now_ms(),
        )
        self._listener = Listener(
            build_app(self.service),
            Limits(
                max_body_bytes=config.max_body_bytes,
                max_request_bytes=most_request_bytes,
                max_head_bytes=head_bytes(config.max_watch_topics),
                max_connections=most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            ),
        )
        self._tls: ssl.SSLContext | None = None
        self._upkeep: asyncio.TimerHandle | None = None
        self._upkeep_due = 0.0
        self._sampling = False
        self._maintaining = False
        self._maintenance_over = asyncio.Event()
        self._collector = GarbageCollector(time.monotonic)
        self._pump: Pump | None = None
        self._routers: RouterPump | None = None
        self.stopping = asyncio.Event()
        self.hurried = asyncio.Event()

    async def run(self) -> int:
        """Serve until told to stop; returns the exit code."""
        sys.setswitchinterval(SWITCH_SECONDS)
        self._tls = _load_tls(self._config.tls)
        self._open_access_log()
        # Before the port is known: a signal that comes earlier would kill the process.
        self._watch_signals()
        fs = RealFs()
        entered = directory.enter(fs, self._data_dir, self._clock)
        self._warn_of_open_directories()
        try:
            await self._bind()
        except BaseException:
            entered.leave()
            raise
        try:
            engine = await self._loop.run_in_executor(None, self._recover, fs, entered)
        except RefusedToOpen:
            await self._listener.close()
            raise
        except _GaveUp:
            _log.info("stopped before recovery was complete; nothing has changed on disk")
            await self._listener.drain(DRAIN_SECONDS)
            await self._listener.close()
            return 0
        self._begin(engine)
        await self.stopping.wait()
        return await self._shut_down(engine)

    # Start

    def _open_access_log(self) -> None:
        path = self._config.access_log
        if path is None:
            return
        try:
            self.service.access_log = AccessLog(
                path, later=self._loop.call_later, pool=self._readers
            )
        except OSError as error:
            raise InvalidSetting(
                "TOPICS_ACCESS_LOG", allowed="a file that can be written, or -", got=str(error)
            ) from error

    def _warn_of_open_directories(self) -> None:
        for path in filter(None, (self._data_dir, self._config.engine.cold_dir)):
            with contextlib.suppress(FileNotFoundError):
                if is_open_to_all(path):
                    _log.warning("every user of this machine can write to %s: chmod 700 it", path)

    async def _bind(self) -> None:
        config = self._config
        try:
            host, port = await self._listener.open(config.host, config.port, tls=self._tls)
        except OSError as error:
            why = error.strerror or str(error)
            message = f"cannot listen on {config.host}:{config.port}: {why}"
            raise OSError(error.errno, message) from error
        self._say_where(host, port)
        if config.port_file is not None:
            self._tell_port(config.port_file, host, port)

    def _say_where(self, host: str, port: int) -> None:
        scheme = "http" if self._config.tls is None else "https"
        shown = f"[{host}]" if ":" in host else host
        where = os.path.abspath(self._data_dir)
        _log.info("listening on %s://%s:%d, data in %s", scheme, shown, port, where)

    def _tell_port(self, path: str, host: str, port: int) -> None:
        try:
            _write_port_file(path, host, port)
        except OSError as error:
            # Not the error itself: a file that is not there would look like a missing topic.
            raise Internal(f"cannot write the port file {path}: {error}") from error

    def _watch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._stop)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_tls)

    def _stop(self) -> None:
        if self.stopping.is_set():
            self._hurry()
        self.service.draining = True
        self.stopping.set()

    def _hurry(self) -> None:
        """A second signal: do not wait for clients, and leave the last checkpoint out."""
        if self.hurried.is_set():
            _log.info("already shutting down as fast as the disk allows; SIGKILL breaks no promise")
            return
        _log.info("shutting down at once, without the last checkpoint; the log has everything")
        self.hurried.set()
        engine = self.service.engine
        if engine is not None and engine.upkeep is not None:
            engine.upkeep.stop_within(0)

    def _reload_tls(self) -> None:
        tls = self._config.tls
        if tls is None or self._tls is None:
            _log.info("SIGHUP: there is no TLS certificate to reload")
            return
        try:
            # A bad pair would leave the context in use half changed, so it is tried out first.
            _load_tls(tls)
            load_certificate(self._tls, Path(tls.cert), Path(tls.key))
            _log.info("TLS certificate reloaded; open connections keep theirs")
        except (InvalidSetting, OSError) as error:
            _log.error("TLS certificate not reloaded, the old one stays: %s", error)

    def _recover(self, fs: RealFs, entered: directory.DataDirectory) -> Engine:
        opening = Opening(
            msgspec.structs.replace(self._config.engine, wal_shards=self._shards),
            self._clock,
            make_committer=self._committer,
            progress=self._note_progress,
        )
        return open_entered(fs, entered, opening)

    def _note_progress(self, share: float) -> None:
        """Called on the thread that recovers; raises if the server is to stop meanwhile."""
        self.service.replay_progress = round(share, 4)
        if self.service.draining:
            raise _GaveUp

    def _committer(self, shards: list[Shard]) -> GroupedCommitter:
        settings = WalSettings(disk_sync_ms=self._config.engine.disk_sync_ms)
        committer = GroupedCommitter(
            shards, settings, self._driver.deliver, self._pressure, at_once=True
        )
        self._driver.committer = committer
        return committer

    def _pressure(self) -> float:
        return 0.0 if self._pump is None else self._pump.pressure

    def _begin(self, engine: Engine) -> None:
        for warning in engine.warnings:
            _log.warning("%s", warning)
        committer = engine.kernel.committer
        assert isinstance(committer, GroupedCommitter)
        timers = LoopTimers(self._loop)
        delivery = LiveDelivery(
            engine,
            self._driver,
            timers=timers,
            schedule=self._loop.call_soon,
            max_sessions=self.service.limits.max_watch_sessions,
        )
        self._pump = Pump(
            delivery,
            committer,
            self._driver,
            shards=self._shards,
            pool_size=READ_THREADS,
            workers=os.cpu_count() or 1,
            timers=timers,
            schedule=self._loop.call_soon,
            soon=self._listener.tick.after_answers,
        )
        self._driver.tick = self._listener.tick
        self._routers = RouterPump(engine, self._driver, self._loop, self._pump.advance)
        self._pump.passes = self._routers
        self.service.pressure = self._pressure
        self.service.attach(engine, delivery)
        self._schedule_upkeep()
        self._collector.begin(len(engine.kernel.catalog.by_id))
        count = len(engine.kernel.catalog.by_id)
        _log.info("ready: %d %s", count, "topic" if count == 1 else "topics")

    # Maintenance

    def _schedule_upkeep(self) -> None:
        self._upkeep = self._loop.call_later(UPKEEP_SECONDS, self._maintain)
        self._upkeep_due = self._loop.time() + UPKEEP_SECONDS

    def _maintain(self) -> None:
        engine = self.service.engine
        assert engine is not None
        assert engine.upkeep is not None
        is_due = self.service.history.tick(late_s=self._loop.time() - self._upkeep_due)
        self._schedule_upkeep()
        if is_due and not self._sampling:
            self._sample(engine)
        self._collector.tick(len(engine.kernel.catalog.by_id), is_busy=self._maintaining)
        if self._maintaining or not engine.upkeep.is_due:
            return
        work = engine.upkeep.poll()
        if work is not None:
            self._maintaining = True
            self._maintenance_over.clear()
            self._driver.start(work, self._maintained, pool=self._maintenance_pool)

    def _sample(self, engine: Engine) -> None:
        """Add a step to the history that consoles draw."""

        def sampled(answer: None, error: TopicsError | None) -> None:
            self._sampling = False
            if error is not None:
                _log.error("no sample for the history: %s", error)

        self._sampling = True
        self._driver.start(self._measure(engine), sampled)

    def _measure(self, engine: Engine) -> Op[None]:
        history = self.service.history
        history.disk = yield Io(lambda: measure(RealFs(), self._data_dir))
        numbers = yield from collect(self.service)
        delivered = yield from self.service.live.passed()
        yield from history.sample(
            engine,
            shards=self._shards,
            pressure=self._pressure(),
            streams=self.service.streams,
            delivered=delivered,
            numbers=numbers.shape,
        )

    def _maintained(self, answer: None, error: TopicsError | None) -> None:
        self._maintaining = False
        self._maintenance_over.set()
        if error is not None:
            _log.error("maintenance failed: %s", error)

    # Stop

    async def _shut_down(self, engine: Engine) -> int:
        """Refuse new requests, let running ones finish, checkpoint, close."""
        _log.info("shutting down")
        self.service.shut_down()
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self._pump is not None:
            self._pump.stop()
        if self._routers is not None:
            self._routers.stop()
        await self._serve_the_rest()
        self._listener.stop_accepting()
        self.service.long_bodies.close()
        code = await self._close(engine)
        await self._listener.close()
        if self.service.access_log is not None:
            self.service.access_log.close()
        self._readers.shutdown(wait=False)
        self._maintenance_pool.shutdown(wait=False)
        _log.info("stopped")
        return code

    async def _serve_the_rest(self) -> None:
        """Running requests finish, unless that takes too long or a second signal comes."""
        served = asyncio.create_task(self._served())
        hurried = asyncio.create_task(self.hurried.wait())
        tasks: set[asyncio.Task[Any]] = {served, hurried}
        await asyncio.wait(tasks, timeout=DRAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _served(self) -> None:
        await asyncio.gather(self._listener.drain(DRAIN_SECONDS), self._driver.idle())

    async def _finish_own_work(self) -> None:
        """Clients are waited for within bounds, our own work to its end: the last checkpoint must
        not meet another one, nor a pass that still moves a router. A checkpoint under way gives
        itself up when the time of the stop is over."""
        if self._routers is not None:
            await self._routers.join()
        if self._maintaining:
            await self._maintenance_over.wait()

    async def _close(self, engine: Engine) -> int:
        assert engine.upkeep is not None
        _log.info("clients have been served; writing the last checkpoint")
        engine.upkeep.stop_within(engine.kernel.settings.stop_checkpoint_ms)
        await self._finish_own_work()
        closed = self._loop.create_future()
        self._driver.start(
            engine.upkeep.closing(),
            lambda _, error: closed.set_result(error),
            pool=self._maintenance_pool,
        )
        await closed
        try:
            await self._loop.run_in_executor(None, engine.kernel.committer.close)
        except LogFailed as error:
            _log.critical("the last records may not be durable: %s", error)
            return 1
        finally:
            self._driver.drain()
            engine.release()
        return 0


def _listed(text: str | None) -> list[str]:
    return [] if text is None else text.split(",")


def most_connections(open_files: int) -> int:
    """How many leave the log and its readers their files, of so many that may be open in all."""
    if open_files < 0:  # no limit
        return NO_LIMIT
    return open_files - min(OWN_FILES, open_files // 4)


def _load_tls(files: TlsFiles | None) -> ssl.SSLContext | None:
    if files is None:
        return None
    try:
        return tls_context(Path(files.cert), Path(files.key))
    except OSError as error:  # SSL errors are among them
        raise InvalidSetting(
            "TOPICS_TLS_CERT and TOPICS_TLS_KEY",
            allowed="PEM files of a certificate chain and its private key",
            got=f"{files.cert!r} and {files.key!r}: {error}",
        ) from error


def _write_port_file(path: str, host: str, port: int) -> None:
    """Whole or not at all: a reader never sees half an address, nor anything but one.

    Other users may write to the directory, as to /tmp: a link that was put there is replaced or
    refused, never followed.
    """
    temporary = Path(f"{path}.tmp")
    shown = f"[{host}]" if ":" in host else host
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o644), "w") as file:
            file.write(f"{shown}:{port}")
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def serve(config: ServerConfig) -> int:
    """Run a server until a signal ends it; returns the exit code."""
    for warning in config.warnings:
        _log.warning("%s", warning)
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - only a server needs it

        return uvloop.run(_serve(config))
    return asyncio.run(_serve(config))


async def _serve(config: ServerConfig) -> int:
    try:
        return await Server(config).run()
    except RefusedToOpen as error:
        _log.critical("refused to start: %s", error)
        print(error.line(), file=sys.stderr)
        return EXIT_REFUSED

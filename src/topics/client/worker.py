"""A pool of threads that works on the jobs of a queue.

    def handle(job):
        send_mail(job.data)

    log.worker("mails", handle, concurrency=8).run()

A job whose handler returns is acked; one whose handler raises is given back and comes again later,
up to the queue's `max_deliveries`, after which the queue itself moves it to its dead letters. A
handler that raises `Reject` sends it there at once. Leases are renewed while a handler works.
Delivery is at least once: a handler must stand being called twice for the same job.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType, TracebackType
from typing import Self, Unpack

from topics.client._retry import is_passing, pause
from topics.client._working import (
    Handler,
    OnError,
    Reject,
    WorkerBase,
    WorkSettings,
    burial,
    retry_delay_ms,
)
from topics.client.interface import AnyLog
from topics.client.keywords import WorkOptions
from topics.client.signalled import SignalledEvent
from topics.errors import TopicsError
from topics.values import Job

__all__ = ["Handler", "Reject", "Worker"]

LOOK_S = 0.2
"""How often a full worker looks whether a signal came: handlers of signals must not take locks."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Worker(WorkerBase):
    """Claims jobs as threads become free, at most `concurrency` at a time.

    `run` blocks until `stop`, or until SIGINT or SIGTERM: then nothing more is claimed, running
    handlers have `grace_s` seconds to finish, and what they have not finished is left to its lease.
    A second signal interrupts at once. `with worker:` runs it beside your program instead.
    """

    def __init__(
        self,
        log: AnyLog,
        topic: str,
        handler: Handler,
        *,
        on_error: OnError | None = None,
        **options: Unpack[WorkOptions],
    ) -> None:
        super().__init__(topic, handler, on_error, WorkSettings(**options))
        self._log = log
        self._queue = log.queue(topic, node=self.node)
        self._stopping = SignalledEvent()
        self._lock = threading.RLock()  # guards the leases and counters; see `_sync_helper`
        self._state = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None

    # Running

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until told to stop."""
        config = self._log.state(self.topic, touch=False).config
        self._adopt(config)
        with self._signals(handle_signals), self._renewing():
            pool = ThreadPoolExecutor(self._options.concurrency, "topics-worker")
            try:
                self._claim_on(pool)
                self._finish()
            finally:
                self._stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Claim nothing more and let running handlers finish. Returns at once."""
        self._stopping.set()
        with self._lock:
            self._state.notify_all()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run_quietly, name="topics-worker", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._thread is not None
        self._thread.join()
        if self._crash is not None and error is None:
            raise self._crash

    def _run_quietly(self) -> None:
        try:
            self.run(handle_signals=False)
        except BaseException as error:  # raised again where the `with` ends
            self._crash = error

    # Claiming

    def _claim_on(self, pool: ThreadPoolExecutor) -> None:
        failures = 0
        while not self._stopping.is_set():
            free = self._await_room()
            if not free:
                return
            try:
                head = self._log.state(self.topic, touch=False).head_seq
                asked = time.monotonic()
                jobs = self._queue.claim(free, lease_ms=self._options.lease_ms)
                if not jobs:
                    # Woken by an append; jobs that come back are found when the wait is over.
                    self._log.read(self.topic, after=head, limit=1, wait=self._options.idle_s)
                failures = 0
            except TopicsError as error:
                if not is_passing(error):
                    raise
                failures += 1
                self._stopping.wait(pause(failures, error))
                continue
            self._hand_out(pool, list(jobs), asked)

    def _await_room(self) -> int:
        """How many handlers are free, once there is one; 0 when the worker stops."""
        with self._lock:
            while not self._stopping.is_set():
                free = self._options.concurrency - len(self._leases)
                if free > 0:
                    return free
                self._state.wait(LOOK_S)
        return 0

    def _hand_out(self, pool: ThreadPoolExecutor, jobs: list[Job], since: float) -> None:
        with self._lock:
            for job in jobs:
                self._leases.hold(job, since)
        for job in jobs:
            pool.submit(self._work_on, job)

    def _finish(self) -> None:
        """Wait for running handlers as long as the grace lasts."""
        with self._lock:
            self._state.wait_for(lambda: not len(self._leases), self._options.grace_s)

    # One job, in a thread of the pool

    def _work_on(self, job: Job) -> None:
        try:
            self._call(job)
        except Reject as error:
            self._failed(job, error)
            self._settle(job, partial(self._bury, job, error))
        except Exception as error:  # whatever a handler raises means: not done
            self._failed(job, error)
            self._settle(job, partial(self._give_back, job, error))
        else:
            self._settle(job, lambda: self._finished(job))
        finally:
            with self._lock:
                self._leases.release(job)
                self._state.notify_all()

    def _call(self, job: Job) -> None:
        outcome = self._handler(job)
        if inspect.isawaitable(outcome):
            asyncio.run(_completed(outcome))

    def _settle(self, job: Job, tell: Callable[[], None]) -> None:
        """Tell the log, again and again while that may help and the lease can still be held."""
        failures = 0
        while True:
            try:
                tell()
                return
            except TopicsError as error:
                failures += 1
                if not is_passing(error) or failures > 8:
                    self._report(job, error)
                    return
                time.sleep(pause(failures, error))

    def _finished(self, job: Job) -> None:
        self._queue.ack([job])
        with self._lock:
            self.done += 1

    def _give_back(self, job: Job, error: Exception) -> None:
        delay_ms = retry_delay_ms(job, self._options.retry_delay_ms)
        self._queue.nack([job], delay_ms=delay_ms, error=error)

    def _bury(self, job: Job, error: Reject) -> None:
        if self._dead_letter is None:
            self._queue.nack([job], delay_ms=retry_delay_ms(job, 60_000), error=error)
            return
        record, key = burial(self.topic, job, error, self.node)
        self._log.append(self._dead_letter, record, idempotency_key=key)
        self._queue.ack([job])

    def _failed(self, job: Job, error: BaseException) -> None:
        with self._lock:
            self.failed += 1
        self._report(job, error)

    # Leases and signals

    @contextlib.contextmanager
    def _renewing(self) -> Iterator[None]:
        over = SignalledEvent()
        thread = threading.Thread(
            target=self._renew_until, args=(over,), name="topics-worker-leases", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _renew_until(self, over: threading.Event) -> None:
        while not over.wait(self._leases.look_every):
            now = time.monotonic()
            with self._lock:
                due = self._leases.due(now)
            if not due:
                continue
            # A renewal that fails is tried again at the next look, well before the lease ends.
            with contextlib.suppress(TopicsError):
                kept = self._queue.extend(due, lease_ms=self._leases.lease_ms)
                with self._lock:
                    self._leases.renewed(due, set(kept.skipped), now)
                    self._state.notify_all()

    @contextlib.contextmanager
    def _signals(self, wanted: bool) -> Iterator[None]:
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            # A second signal is handled as if there were no worker.
            restore()
            self._stopping.set()

        before = {number: signal.signal(number, stop) for number in _SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        try:
            yield
        finally:
            restore()


async def _completed(outcome: Awaitable[object]) -> None:
    await outcome

"""The asyncio twin of `Worker`: works on the jobs of a queue with several tasks.

    async def handle(job):
        await send_mail(job.data)

    await log.worker("mails", handle, concurrency=50).run()

A handler that is a plain function runs in a thread, so that it does not hold up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

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
from topics.client.aio import AsyncRemoteLog
from topics.client.keywords import WorkOptions
from topics.errors import TopicsError
from topics.values import Job

__all__ = ["AsyncWorker", "Handler", "Reject"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class AsyncWorker(WorkerBase):
    """Claims jobs as tasks become free, at most `concurrency` at a time; see `Worker`."""

    def __init__(
        self,
        log: AsyncRemoteLog,
        topic: str,
        handler: Handler,
        *,
        on_error: OnError | None = None,
        **options: Unpack[WorkOptions],
    ) -> None:
        super().__init__(topic, handler, on_error, WorkSettings(**options))
        self._log = log
        self._queue = log.queue(topic, node=self.node)
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._background: asyncio.Task[None] | None = None

    # Running

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop`, or until SIGINT or SIGTERM; running handlers may finish."""
        config = (await self._log.state(self.topic, touch=False)).config
        self._adopt(config)
        with self._signals(handle_signals):
            async with self._renewing():
                try:
                    await self._claim_on()
                    if self._tasks:
                        await asyncio.wait(self._tasks, timeout=self._options.grace_s)
                finally:
                    self._stopping.set()
                    for task in self._tasks:
                        task.cancel()
                    await asyncio.gather(*self._tasks, return_exceptions=True)
                    if self._threads is not None:
                        self._threads.shutdown(wait=False)

    def stop(self) -> None:
        """Claim nothing more and let running handlers finish. Returns at once."""
        self._stopping.set()

    async def __aenter__(self) -> Self:
        self._background = asyncio.create_task(self.run(handle_signals=False))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._background is not None
        (crash,) = await asyncio.gather(self._background, return_exceptions=True)
        if isinstance(crash, BaseException) and error is None:
            raise crash

    # Claiming

    async def _claim_on(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            free = self._options.concurrency - len(self._tasks)
            if free <= 0:
                await self._first_of(*self._tasks)
                continue
            try:
                head = (await self._log.state(self.topic, touch=False)).head_seq
                asked = _now()
                jobs = await self._queue.claim(free, lease_ms=self._options.lease_ms)
                if not jobs:
                    await self._await_jobs(head)
                failures = 0
            except TopicsError as error:
                if not is_passing(error):
                    raise
                failures += 1
                await self._stopped_within(pause(failures, error))
                continue
            self._hand_out(list(jobs), asked)

    async def _await_jobs(self, head: int) -> None:
        """Wait for an append. A job that is given back ends no wait: it is found after it."""
        waiting = asyncio.ensure_future(
            self._log.read(self.topic, after=head, limit=1, wait=self._options.idle_s)
        )
        try:
            await self._first_of(waiting)
            if waiting.done():
                await waiting
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    def _hand_out(self, jobs: list[Job], since: float) -> None:
        for job in jobs:
            self._leases.hold(job, since)
            task = asyncio.create_task(self._work_on(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _first_of(self, *awaited: asyncio.Future[Any]) -> None:
        """Until one of them is done, or the worker stops."""
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([*awaited, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await asyncio.gather(stopped, return_exceptions=True)

    async def _stopped_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # One job

    async def _work_on(self, job: Job) -> None:
        try:
            await self._call(job)
        except Reject as error:
            self._failed(job, error)
            await self._settle(job, partial(self._bury, error=error))
        except Exception as error:  # whatever a handler raises means: not done
            self._failed(job, error)
            await self._settle(job, partial(self._give_back, error=error))
        else:
            await self._settle(job, self._finished)
        finally:
            self._leases.release(job)

    async def _call(self, job: Job) -> None:
        if inspect.iscoroutinefunction(self._handler):
            await self._handler(job)
        else:
            outcome = await self._in_a_thread(job)
            if inspect.isawaitable(outcome):
                await outcome

    async def _in_a_thread(self, job: Job) -> object:
        """Not in one of asyncio's own: they are few, and connecting needs them too."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._options.concurrency, "topics-worker")
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, run, self._handler, job)

    async def _settle(self, job: Job, tell: Callable[[Job], Awaitable[None]]) -> None:
        """Tell the log, again and again while that may help and the lease can still be held."""
        failures = 0
        while True:
            try:
                await tell(job)
                return
            except TopicsError as error:
                failures += 1
                if not is_passing(error) or failures > 8:
                    self._report(job, error)
                    return
                await asyncio.sleep(pause(failures, error))

    async def _finished(self, job: Job) -> None:
        await self._queue.ack([job])
        self.done += 1

    async def _give_back(self, job: Job, *, error: Exception) -> None:
        delay_ms = retry_delay_ms(job, self._options.retry_delay_ms)
        await self._queue.nack([job], delay_ms=delay_ms, error=error)

    async def _bury(self, job: Job, *, error: Reject) -> None:
        if self._dead_letter is None:
            await self._queue.nack([job], delay_ms=retry_delay_ms(job, 60_000), error=error)
            return
        record, key = burial(self.topic, job, error, self.node)
        await self._log.append(self._dead_letter, record, idempotency_key=key)
        await self._queue.ack([job])

    def _failed(self, job: Job, error: BaseException) -> None:
        self.failed += 1
        self._report(job, error)

    # Leases and signals

    @contextlib.asynccontextmanager
    async def _renewing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._leases.look_every)
            now = _now()
            due = self._leases.due(now)
            if not due:
                continue
            # A renewal that fails is tried again at the next look, well before the lease ends.
            with contextlib.suppress(TopicsError):
                kept = await self._queue.extend(due, lease_ms=self._leases.lease_ms)
                self._leases.renewed(due, set(kept.skipped), now)

    @contextlib.contextmanager
    def _signals(self, wanted: bool) -> Iterator[None]:
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def restore() -> None:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

        def stop() -> None:
            restore()  # a second signal is handled as if there were no worker
            self._stopping.set()

        for number in _SIGNALS:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            restore()


def _now() -> float:
    return asyncio.get_running_loop().time()

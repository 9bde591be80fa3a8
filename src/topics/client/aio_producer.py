"""The asyncio twin of `Producer`: gathers records into batches and sends them from a task.

async with log.producer("orders", linger_ms=5) as orders:
    async for order in source:
        await orders.send(order, tag=order["customer"])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, Unpack

from topics.client._batching import (
    DEFAULT_WINDOW_MS,
    Batch,
    BatchSettings,
    Buffer,
    Delivery,
    OnDelivery,
    bounded,
    check_window,
    draft_of,
    undecided,
    unexpected,
)
from topics.client._showing import Shown
from topics.client.aio import AsyncRemoteLog
from topics.client.keywords import BatchOptions
from topics.errors import Closed, Throttled, TopicNotFound, TopicsError
from topics.topic_settings import TopicSettings
from topics.values import Ack

__all__ = ["AsyncProducer", "Delivery"]


class AsyncProducer(Shown):
    """Sends records of any number of tasks to one topic; see `Producer` for the options."""

    def __init__(
        self,
        log: AsyncRemoteLog,
        topic: str,
        *,
        on_delivery: OnDelivery | None = None,
        create: bool | None = None,
        config: TopicSettings | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        self.topic = topic
        self._log = log
        self._on_delivery = on_delivery
        self._create = create
        self._config = config
        self._buffer = Buffer(BatchSettings(**options).checked())
        self._changed = asyncio.Event()  # set and replaced at every change that somebody awaits
        self._flush_to = 0
        self._is_closing = False
        self._failure: BaseException | None = None
        self._knows_window = False
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def _words(self) -> str:
        state = "closed" if self._is_closing else f"{self._buffer.undecided} records on their way"
        return f"for {self.topic!r}: {state}"

    async def send(
        self,
        data: object,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: object = None,
        on_delivery: OnDelivery | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the blocking producer
    ) -> None:
        """Hand over one record; see `Producer.send`. Callbacks run in the event loop."""
        draft = draft_of(data, tag, node, meta, on_delivery or self._on_delivery)
        if not self._is_closing and not self._buffer.has_room(draft.size):
            try:
                await self._until(
                    lambda: self._is_closing or self._buffer.has_room(draft.size), timeout
                )
            except TimeoutError:
                limit = self._buffer.options.buffer_bytes
                raise Throttled("buffer_bytes", maximum=limit) from None
        if self._is_closing:
            raise Closed("the producer is closed; make a new one")
        self._buffer.add(draft, _now())
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"topics-producer-{self.topic}")
        if self._buffer.due_in(_now()) == 0.0 or self._buffer.undecided == 1:
            self._wake()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        """Wait until everything sent so far is acked; raises the first error since last time."""
        goal = self._buffer.added
        self._flush_to = max(self._flush_to, goal)
        self._wake()
        try:
            await self._until(lambda: self._buffer.decided >= goal, timeout)
        except TimeoutError:
            left = goal - self._buffer.decided
            raise TimeoutError(f"{left} records are not acked yet") from None
        self._raise_failure()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        """Deliver what is left and stop. After `timeout` seconds the rest is given up."""
        await self._stop(timeout)
        self._raise_failure()

    async def _stop(self, patience: float | None) -> None:
        self._is_closing = True
        self._wake()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=patience)
            self._hurry.set()
            await self._task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop(None)
        if error is None:  # the caller's own error matters more
            self._raise_failure()

    # The producer's task

    async def _work(self) -> None:
        while True:
            due = self._buffer.due_in(_now())
            in_a_hurry = self._is_closing or self._flush_to > self._buffer.decided
            if due is None and self._is_closing:
                return
            if due == 0.0 or (due is not None and in_a_hurry):
                await self._deliver(self._buffer.take(_now()))
            else:
                await self._pause(due)

    async def _deliver(self, batch: Batch) -> None:
        while True:
            try:
                batch.trying(_now())
                await self._learn_window()
                outcome: Ack | TopicsError = await self._append(batch)
            except TopicsError as error:
                next_step = batch.judge(error, _now(), self._buffer.options)
                if next_step == "split":
                    for half in batch.halves():
                        await self._deliver(half)
                    return
                if isinstance(next_step, TopicsError):
                    outcome = next_step
                elif await self._hurried(next_step):
                    outcome = undecided(self.topic)
                else:
                    continue
            except Exception as error:  # a bug; but whoever waits for these records must hear of it
                outcome = unexpected(error)
            self._settle(batch, outcome)
            return

    async def _append(self, batch: Batch) -> Ack:
        batch.has_left = True
        return await self._log.append(
            self.topic,
            batch.records,
            idempotency_key=batch.key,
            create=self._create,
            config=self._config,
        )

    async def _learn_window(self) -> None:
        if self._knows_window:
            return
        try:
            config = (await self._log.state(self.topic, touch=False)).config
        except TopicNotFound:
            config = self._config or {}
        window_ms = config.get("idempotency_window_ms", DEFAULT_WINDOW_MS)
        check_window(self.topic, window_ms, self._buffer.options)
        self._buffer.options = bounded(self._buffer.options, window_ms)
        self._knows_window = True

    def _settle(self, batch: Batch, outcome: Ack | TopicsError) -> None:
        for told, delivery in batch.deliveries(outcome):
            try:
                told(delivery)
            except asyncio.CancelledError as error:
                # Nobody cancels this task here, and who flushes must not seem cancelled either.
                failure = RuntimeError("a callback wants the result of what was cancelled")
                failure.__cause__ = error
                self._failure = self._failure or failure
            except Exception as error:  # the caller's code; its error is the caller's to see
                self._failure = self._failure or error
        if isinstance(outcome, TopicsError):
            self._failure = self._failure or outcome
        self._buffer.settle(batch)
        self._wake()

    # Waiting

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, happened: Callable[[], bool], patience: float | None) -> None:
        async with asyncio.timeout(patience):
            while not happened():
                await self._changed.wait()

    async def _pause(self, seconds: float | None) -> None:
        """Until something changes, or that long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _hurried(self, seconds: float) -> bool:
        """Wait; whether the producer has to give up meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return False
        return True

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _now() -> float:
    return asyncio.get_running_loop().time()

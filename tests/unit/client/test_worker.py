"""Workers on a queue in memory whose claims take long. Both shells, by one suite."""

import asyncio
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import topics
from topics.client import aio_worker, worker
from topics.client.aio_worker import AsyncWorker
from topics.client.worker import Worker
from topics.values import Job

LEASE_MS = 5000
PATIENCE_S = 60.0
both = pytest.mark.parametrize("shell", ["sync", "async"])


class Clock:
    """A steady clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0


class SlowQueue:
    """A queue whose answers to a claim are almost as long on their way as the lease lasts."""

    def __init__(self, log: Any, clock: Clock) -> None:  # noqa: ANN401 - of either kind
        self._inner = log.queue("q", node="w")
        self._clock = clock
        self.was_renewed = threading.Event()

    def claim(self, most: int = 1, *, lease_ms: int | None = None) -> Sequence[Job]:
        jobs: Sequence[Job] = self._inner.claim(most, lease_ms=lease_ms)
        if jobs:
            self._clock.now += LEASE_MS * 0.0009
        return jobs

    def extend(self, jobs: Any, *, lease_ms: int) -> Any:  # noqa: ANN401
        self.was_renewed.set()
        return self._inner.extend(jobs, lease_ms=lease_ms)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest is left as it is
        return getattr(self._inner, name)


class Awaitable:
    """Something whose calls are awaited."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401
        self._inner = inner

    def queue(self, topic: str, *, node: str) -> Any:  # noqa: ANN401
        return Awaitable(self._inner.queue(topic, node=node))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        async def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            await asyncio.sleep(0)
            return getattr(self._inner, name)(*args, **options)

        return call


def working(shell: str, log: Any, handler: Callable[[Job], None], **options: Any) -> None:  # noqa: ANN401
    """Run a worker until its handler has returned or raised."""
    stop: list[Callable[[], object]] = []

    def handle(job: Job) -> None:
        try:
            handler(job)
        finally:
            stop[0]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        made = AsyncWorker(Awaitable(log), "q", handle, **options)  # type: ignore[arg-type]
        stop.append(lambda: loop.call_soon_threadsafe(made.stop))
        await made.run(handle_signals=False)

    if shell == "async":
        asyncio.run(main())
    else:
        made = Worker(log, "q", handle, **options)
        stop.append(made.stop)
        made.run(handle_signals=False)


@both
def test_a_lease_is_counted_from_when_it_was_asked_for(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    steady = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(worker, "time", steady)
    monkeypatch.setattr(aio_worker, "_now", lambda: clock.now)
    with topics.open() as inner:
        inner.create("q", type="queue", lease_ms=LEASE_MS)
        inner.append("q", {"data": 1})
        queue = SlowQueue(inner, clock)
        log = types.SimpleNamespace(
            state=inner.state, read=inner.read, queue=lambda topic, node: queue
        )
        renewed: list[bool] = []
        working(shell, log, lambda job: renewed.append(queue.was_renewed.wait(PATIENCE_S)))
    assert renewed == [True]


@both
def test_as_many_handlers_work_at_once_as_were_asked_for(shell: str) -> None:
    many = 40  # more than the threads that asyncio has by itself
    together = threading.Barrier(many)
    met: list[int] = []

    def handle(job: Job) -> None:
        together.wait(PATIENCE_S)
        met.append(job.seq)

    with topics.open() as log:
        log.create("q", type="queue")
        log.append("q", [{"data": n} for n in range(many)])
        working(shell, log, handle, concurrency=many)
    assert len(met) == many

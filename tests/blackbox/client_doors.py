"""Every door to a log behind one blocking interface, so that one suite can hold them all to it."""

# ruff: noqa: ANN401 - it stands in for objects of any type

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from topics.client.aio import AsyncRemoteLog

PATIENCE_S = 90.0


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(PATIENCE_S)

    def close(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()


class Blocking:
    """An asyncio object whose coroutines block and whose async iterators are plain ones."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("queue", "consumer", "producer", "worker"):
            return lambda *args, **options: Blocking(
                self._loop.run(_made(found, args, options)), self._loop
            )
        if not callable(found):
            return found
        return lambda *args, **options: self._outcome(found, args, options)

    def _outcome(self, call: Callable[..., Any], args: Any, options: Any) -> Any:
        if inspect.isasyncgenfunction(call):
            return _blocking_iterator(call(*args, **options), self._loop)
        made = self._loop.run(_made(call, args, options))
        return self._loop.run(made) if inspect.isawaitable(made) else made

    def __iter__(self) -> Iterator[Any]:
        return _blocking_iterator(self._inner.__aiter__(), self._loop)

    def __enter__(self) -> Blocking:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._inner.__aexit__(*error))


async def _made(call: Callable[..., Any], args: Any, options: Any) -> Any:
    made = call(*args, **options)
    return await made if inspect.iscoroutine(made) else made


def _blocking_iterator(items: AsyncIterator[Any], loop: LoopThread) -> Iterator[Any]:
    end = object()

    async def step() -> Any:
        return await anext(items, end)

    try:
        while (item := loop.run(step())) is not end:
            yield item
    finally:
        if inspect.isasyncgen(items):
            loop.run(items.aclose())


class AsyncDoor(Blocking):
    """An asyncio client, used from a test that knows nothing of asyncio."""

    def __init__(self, url: str, **settings: Any) -> None:
        loop = LoopThread()

        async def make() -> AsyncRemoteLog:
            return AsyncRemoteLog(url, **settings)

        super().__init__(loop.run(make()), loop)

    def close(self) -> None:
        self._loop.run(self._inner.close())
        self._loop.close()

    def __exit__(self, *error: object) -> None:
        self.close()

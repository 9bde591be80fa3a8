"""The asyncio interface: `async with topics.aio.open("http://127.0.0.1:4000") as log`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog
    from topics.client.aio_consumer import AsyncConsumer
    from topics.client.aio_producer import AsyncProducer
    from topics.client.aio_queue import AsyncRemoteQueue
    from topics.client.aio_worker import AsyncWorker
    from topics.client.keywords import ClientSettings

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncRemoteLog",
    "AsyncRemoteQueue",
    "AsyncWorker",
    "open",
]

_LATER = {
    "AsyncConsumer": "aio_consumer",
    "AsyncProducer": "aio_producer",
    "AsyncRemoteLog": "aio",
    "AsyncRemoteQueue": "aio_queue",
    "AsyncWorker": "aio_worker",
}


def open(url: str, **settings: Unpack[ClientSettings]) -> AsyncRemoteLog:
    """A client of the server at `url`, with the calls, results and errors of `topics.open`.

    Nothing is sent before the first call. Settings are `token`, `timeout`, `retries`,
    `heartbeat`, `ca_file` and `connections`. It belongs to the event loop of its first call.
    """
    from topics.client.opening import open_remote_async  # noqa: PLC0415 - keeps imports light

    return open_remote_async(url, settings)


if not TYPE_CHECKING:  # a checker would take it as leave to use any name

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - as above

        if name in _LATER:
            return getattr(import_module(f"topics.client.{_LATER[name]}"), name)
        raise AttributeError(f"module 'topics.aio' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""The asyncio door: `async with topics.aio.open("http://127.0.0.1:4000") as log`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog

__all__ = ["open"]


def open(url: str, **settings: Any) -> AsyncRemoteLog:  # noqa: ANN401 - checked by name
    """A client of the server at `url`, with the calls, results and errors of `topics.open`.

    Nothing is sent before the first call. Settings are `token`, `timeout`, `retries`,
    `heartbeat`, `ca_file` and `connections`. It belongs to the event loop of its first call.
    """
    from topics.client.opening import open_remote_async  # noqa: PLC0415 - keeps imports light

    return open_remote_async(url, settings)

"""What `topics.open` and `topics.aio.open` do with a server's address."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from topics.client.keywords import ClientSettings
from topics.errors import InvalidRequest

if TYPE_CHECKING:
    from topics.client.aio import AsyncRemoteLog
    from topics.client.sync import RemoteLog

SETTINGS = tuple(ClientSettings.__annotations__)
_SPANS = ("timeout", "heartbeat")
_COUNTS = {"retries": 0, "connections": 1}
"""Whole numbers, with the least that makes sense."""


def open_remote(url: str, settings: Mapping[str, Any]) -> RemoteLog:
    """A blocking client. Nothing is sent before the first call."""
    from topics.client.sync import RemoteLog  # noqa: PLC0415 - one shell does not need the other

    return RemoteLog(url, **checked(settings))


def open_remote_async(url: str, settings: Mapping[str, Any]) -> AsyncRemoteLog:
    """An asyncio client. Nothing is sent before the first call."""
    from topics.client.aio import AsyncRemoteLog  # noqa: PLC0415 - as above

    return AsyncRemoteLog(url, **checked(settings))


def checked(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings by keyword; an unknown one is an error that names those there are."""
    for name in settings:
        if name not in SETTINGS:
            raise InvalidRequest(
                f"a log behind an address has no setting {name!r}; known: {', '.join(SETTINGS)}"
            )
    for name in _SPANS:
        seconds = settings.get(name, 1)
        if not isinstance(seconds, int | float) or not 0 < seconds < inf:
            raise InvalidRequest(f"{name} must be a number of seconds above 0, got {seconds!r}")
    for name, least in _COUNTS.items():
        count = settings.get(name, least)
        if not isinstance(count, int) or count < least:
            raise InvalidRequest(f"{name} must be a whole number from {least}, got {count!r}")
    return settings

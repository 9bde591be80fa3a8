"""The log in this process and both clients have the same calls, arguments and help texts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

from topics.client.aio import AsyncRemoteLog
from topics.client.aio_queue import AsyncRemoteQueue
from topics.client.interface import AnyLog
from topics.client.queue_interface import AnyQueue
from topics.client.sync import RemoteLog
from topics.client.sync_queue import RemoteQueue
from topics.embedded.log import Log
from topics.embedded.queues import Queue

ONLY_REMOTE = {"url"}
ONLY_EMBEDDED = {"sync", "maintain", "checkpoint"}
ONLY_ARGUMENT_OF_CLIENTS = "transport"


def calls(kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    for name in dir(kind):
        if not name.startswith("_") and callable(getattr(kind, name)):
            yield name, getattr(kind, name)


def arguments(call: Callable[..., object]) -> list[tuple[str, object, object]]:
    given = inspect.signature(call).parameters.values()
    return [
        # A queue's worker is called "client" or "embedded" unless it is given a name.
        (each.name, each.annotation, None if each.name == "node" else each.default)
        for each in given
        if each.name != ONLY_ARGUMENT_OF_CLIENTS
    ]


def blocking(text: str) -> str:
    return re.sub(r"\bAsync(?=[A-Z])", "", text).replace("several tasks", "several threads")


FACES = [
    *((AnyLog, face) for face in (RemoteLog, Log, AsyncRemoteLog)),
    *((AnyQueue, face) for face in (RemoteQueue, Queue, AsyncRemoteQueue)),
]


@pytest.mark.parametrize(("interface", "face"), FACES)
def test_a_face_has_the_calls_of_the_interface_and_no_other(interface: type, face: type) -> None:
    more = {name for name, _ in calls(face)} - {name for name, _ in calls(interface)}
    assert more <= (ONLY_EMBEDDED if face is Log else ONLY_REMOTE)
    for name, call in calls(interface):
        assert arguments(getattr(face, name)) == arguments(call), name


@pytest.mark.parametrize(("interface", "face"), FACES)
def test_a_face_shows_the_help_of_the_interface(interface: type, face: type) -> None:
    for name, call in calls(interface):
        shown = inspect.getdoc(getattr(face, name))
        assert shown is not None, name
        assert blocking(shown) == inspect.getdoc(call), name

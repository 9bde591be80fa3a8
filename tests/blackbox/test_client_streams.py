"""Live reads through trouble: kills, restarts, dead connections. No gap, no repeat.

Everything is held to it blocking and with asyncio, over an event stream and over a WebSocket; where
a server has to be restarted for it, all of them at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.blackbox.client_world import (
    BOTH,
    EVERY,
    KEY,
    KINDS,
    PATIENCE_S,
    SHELLS,
    Door,
    Kind,
    Proxy,
    Shell,
    Writer,
    all_at_once,
    doors,
    live_server,
)

import topics
from topics import errors
from topics.events import Arrived, CaughtUp, Lost, Resumed, TopicDropped
from topics.testing import LiveServer
from topics.values import Tombstone

Open = Callable[..., Door]


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("streams"), {}) as server:
        yield server


@pytest.fixture
def server(module_server: LiveServer) -> LiveServer:
    """The one server of these tests; it runs, whatever the test before has done to it."""
    return module_server if module_server.is_running else module_server.start()


@pytest.fixture
def opened() -> Iterator[Open]:
    with doors() as make:
        yield make


def test_streams_survive_kills_of_the_server_without_a_gap_or_a_repeat(
    server: LiveServer, opened: Open
) -> None:
    opened("sync", server.url).create("killed")
    logs = {kind: opened(kind[0], server.url) for kind in KINDS}
    moved = threading.Condition()
    seen: dict[Kind, tuple[list[int], list[Resumed]]] = {kind: ([], []) for kind in KINDS}

    def read(kind: Kind) -> None:
        got, resumed = seen[kind]
        for event in logs[kind].watch(["killed"], transport=kind[1]):
            with moved:
                if isinstance(event, Resumed):
                    resumed.append(event)
                elif not isinstance(event, CaughtUp):
                    assert isinstance(event, Arrived), event
                    got.append(event.record.data)
                moved.notify_all()
            if len(resumed) >= 2 and len(got) >= 100:
                return

    def all_have(resumes: int, records: int) -> bool:
        return all(
            len(resumed) >= resumes and len(got) >= records for got, resumed in seen.values()
        )

    def kill_twice() -> None:
        for kills in range(2):
            with moved:
                assert moved.wait_for(partial(all_have, kills, 30 * (kills + 1)), PATIENCE_S)
            server.restart()

    writer = Writer(server.url, "killed")
    acts: list[Callable[[], None]] = [partial(read, kind) for kind in KINDS]
    all_at_once([*acts, kill_twice])
    written = writer.stop()
    for got, resumed in seen.values():
        assert got == list(range(len(got)))
        assert len(got) <= written + 1  # the last one may be seen before its writer is told
        assert len(resumed) >= 2, "as often as the server was killed"
        assert all(event.positions["killed"] > 0 for event in resumed)
        assert all(event.reason and event.away_seconds > 0 for event in resumed)


def test_what_happened_during_a_graceful_restart_is_said_afterwards(
    server: LiveServer, opened: Open
) -> None:
    direct = opened("sync", server.url)
    direct.create("capped", cap_records=1)
    direct.append("capped", {"data": 1})
    direct.append("doomed", {"data": 1})
    watches = [opened(kind[0], server.url).watch(["capped", "doomed"]) for kind in KINDS[:2]]
    for events in watches:
        assert [type(next(events)) for _ in range(4)] == [Arrived, CaughtUp] * 2
    assert server.stop() == 0
    server.start()
    direct.append("capped", [{"data": n} for n in range(2, 6)])
    direct.drop("doomed")
    for events in watches:
        resumed, *rest = [next(events) for _ in range(5)]
        assert isinstance(resumed, Resumed)
        assert resumed.positions == {"capped": 1, "doomed": 1}
        assert "shutting down" in resumed.reason
        assert rest[0] == TopicDropped("doomed")
        assert rest[1] == Lost("capped", Tombstone(2, 4, "cap", 5, 5))
        assert (rest[2].record.data, rest[3]) == (5, CaughtUp("capped", 5))
        events.close()


def test_a_wait_that_ends_while_the_server_is_away_is_an_error_and_not_an_end(
    server: LiveServer, opened: Open
) -> None:
    opened("sync", server.url).append("away", {"data": 1})
    logs = [opened(shell, server.url, retries=0, heartbeat=1.0) for shell in SHELLS]
    follows = [log.follow("away", wait=3.0) for log in logs]
    assert [next(items).data for items in follows] == [1, 1]
    server.kill()

    def wait_on(items: Any) -> None:  # noqa: ANN401 - of either shell
        with pytest.raises(errors.Unreachable):
            next(items)

    all_at_once([partial(wait_on, items) for items in follows])


@pytest.fixture
def proxy(server: LiveServer) -> Iterator[Proxy]:
    between = Proxy(server.url)
    yield between
    between.close()


def until_record(events: Any) -> list[Any]:  # noqa: ANN401 - of either shell
    """Up to the next record; before it a stream may be resumed more than once."""
    found = [next(events)]
    while not isinstance(found[-1], Arrived):
        found.append(next(events))
    return [event for event in found if not isinstance(event, CaughtUp)]


def test_half_open_streams_are_noticed_and_resumed(
    server: LiveServer, proxy: Proxy, opened: Open
) -> None:
    direct = opened("sync", server.url)
    direct.append("cut", {"data": 1})
    watches = [
        opened(shell, proxy.url, heartbeat=1.0).watch(["cut"], transport=transport)
        for shell, transport in KINDS
    ]
    assert [until_record(events)[-1].record.data for events in watches] == [1] * 4
    proxy.cut()
    direct.append("cut", {"data": 2})  # swallowed by connections that look alive
    found = all_at_once([partial(until_record, events) for events in watches])
    for resumed, *_, arrived in found:
        assert isinstance(resumed, Resumed)
        assert "silent" in resumed.reason
        assert arrived.record.data == 2
    for events in watches:
        events.close()


@BOTH
def test_a_half_open_connection_of_the_pool_is_given_up_and_the_write_repeated_once(
    server: LiveServer, proxy: Proxy, opened: Open, shell: Shell
) -> None:
    log = opened(shell, proxy.url, timeout=2.0, retries=20)
    topic = f"pool-{shell}"
    log.append(topic, {"data": 1})
    proxy.cut()
    log.append(topic, {"data": 2})
    assert [record.data for record in log.read(topic).records] == [1, 2]
    assert proxy.connections >= 2


@EVERY
def test_a_wrong_token_ends_a_stream_at_once(
    server: LiveServer, opened: Open, shell: Shell, transport: str
) -> None:
    opened("sync", server.url).append("secret", {"data": 1})
    for token in ("wrong", None):
        with pytest.raises(errors.Unauthorized):
            next(opened(shell, server.url, token=token).follow("secret", transport=transport))


@EVERY
def test_a_topic_that_was_made_anew_is_read_from_its_new_beginning(
    server: LiveServer, opened: Open, shell: Shell, transport: str
) -> None:
    log = opened(shell, server.url)
    topic = f"anew-{shell}-{transport}"
    log.append(topic, [{"data": n} for n in range(5)])
    log.drop(topic)
    log.append(topic, {"data": "new"})
    items = log.follow(topic, after=5, transport=transport)
    lost, first = next(items), next(items)
    items.close()
    assert isinstance(lost, Tombstone)
    assert lost.reason == "recreated"
    assert first.data == "new"


@EVERY
def test_a_slow_reader_gets_everything(
    server: LiveServer, opened: Open, shell: Shell, transport: str
) -> None:
    log = opened(shell, server.url)
    topic = f"slow-{shell}-{transport}"
    log.append(topic, {"data": -1})
    items = log.follow(topic, transport=transport)
    assert next(items).data == -1
    # Far more than socket buffers hold, while nobody reads.
    for start in range(0, 300, 100):
        log.append(topic, [{"data": n, "meta": "x" * 10_000} for n in range(start, start + 100)])
    assert [next(items).data for _ in range(300)] == list(range(300))
    items.close()


@BOTH
def test_a_socket_cannot_match_tags_and_says_so(
    server: LiveServer, opened: Open, shell: Shell
) -> None:
    log = opened(shell, server.url)
    log.create("matched")
    with pytest.raises(errors.InvalidRequest, match="match"):
        next(log.follow("matched", match="x", transport="ws"))


def test_closing_a_client_ends_its_streams(server: LiveServer) -> None:
    log = topics.open(server.url, token=KEY)
    log.create("closed")
    items = log.follow("closed")
    closing = threading.Timer(0.2, log.close)
    closing.start()
    with pytest.raises(errors.Closed):
        next(items)
    closing.join()

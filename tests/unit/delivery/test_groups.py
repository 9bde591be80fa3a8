"""Watchers of one topic are served together, and none of them can tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.delivery.builders import Client, Peer, World, memory_world

from topics.delivery.event_stream import QueueBounds
from topics.delivery.groups import CHUNK
from topics.delivery.pages import Options
from topics.wire.requests import Start

WALK = 2 * CHUNK
"""As many as one budget of this world's clock serves."""

MANY = WALK + 10


class Fateful(Peer):
    """A peer to whom something happens as it is sent the next piece."""

    def __init__(self) -> None:
        super().__init__()
        self.fate: list[object] = []

    def write(self, data: bytes) -> bool:
        while self.fate:
            event = self.fate.pop()
            assert callable(event)
            event()
        return True if self.closed else super().write(data)


@pytest.fixture
def world() -> World:
    """Room for a group, and one topic to watch."""
    made = memory_world(max_sessions=0)
    made.put("orders")
    return made


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What fails in a stream ends in the log, and nothing does unless a test clears it."""
    yield
    assert caplog.get_records("call") == []


def group(world: World, size: int, options: Options | None = None) -> list[Peer]:
    """Caught-up watchers of the topic."""
    peers = [world.watch("orders", options=options) for _ in range(size)]
    for peer in peers:
        peer.events()
    return peers


def join(world: World, peer: Peer, *, bounds: QueueBounds = QueueBounds(1024, 1 << 20)) -> Peer:  # noqa: B008
    world.stream(world.session({"orders": Start()}), peer, bounds=bounds)
    world.settle()
    peer.events()
    return peer


def seqs(peer: Peer) -> list[int]:
    return [
        record["$seq"]
        for event in peer.events()
        if event.event == "record"
        for record in event.data["records"]
    ]


def fail() -> None:
    raise RuntimeError("a bug in one stream")


def test_a_publish_is_read_and_framed_once_for_everybody(world: World) -> None:
    peers = group(world, MANY)
    reads = world.delivery.pages.reads
    world.append("orders", 1)
    assert world.delivery.pages.reads == reads + 1
    assert len({id(peer.chunks[-1]) for peer in peers}) == 1
    for peer in peers:
        record, caught_up = peer.events()
        assert (record.data["from_seq"], record.data["to_seq"]) == (0, 1)
        assert record.positions == caught_up.positions == {"orders": 1}


def test_one_turn_of_the_loop_serves_one_slice(world: World) -> None:
    peers = group(world, MANY)
    world.append("orders", 1, settle=False)
    world.turn()
    assert [bool(seqs(peer)) for peer in peers] == [True] * WALK + [False] * (MANY - WALK)
    world.turn()
    assert [bool(seqs(peer)) for peer in peers] == [False] * WALK + [True] * (MANY - WALK)


def test_two_busy_topics_share_the_slices(world: World) -> None:
    world.put("audit")
    group(world, MANY)
    others = [world.watch("audit") for _ in range(MANY)]
    for peer in others:
        peer.events()
    world.append("orders", 1, settle=False)
    world.append("audit", 1, settle=False)
    world.turn()
    world.turn()
    assert 0 < sum(bool(seqs(peer)) for peer in others) < MANY
    world.settle()
    assert sum(bool(seqs(peer)) for peer in others) > 0


def test_records_published_during_a_walk_reach_everybody_once_and_in_order(world: World) -> None:
    peers = group(world, 3 * WALK)
    for n in range(7):
        world.append("orders", n, settle=False)
        world.turn()
    world.settle()
    for peer in peers:
        assert seqs(peer) == list(range(1, 8))


def test_news_during_a_walk_reach_those_it_has_passed_already(world: World) -> None:
    peers = group(world, 3 * WALK)
    world.append("orders", 1, settle=False)
    world.turn()
    world.append("orders", 2)
    for peer in peers:
        assert seqs(peer) == [1, 2]


def test_news_before_a_walk_has_begun_make_no_second_one(world: World) -> None:
    group(world, 2)
    changes = world.delivery.changes
    changes.wake("orders")
    changes.wake("orders")
    changes.budget.run()
    assert not len(changes.budget)


def test_a_watcher_that_joins_during_a_walk_misses_nothing(world: World) -> None:
    group(world, MANY)
    world.append("orders", 1, settle=False)
    world.turn()
    late = Peer()
    world.stream(world.session({"orders": Start()}), late)
    world.append("orders", 2, settle=False)
    world.settle()
    assert seqs(late) == [1, 2]


def test_watchers_elsewhere_get_what_they_lack(world: World) -> None:
    world.append("orders", 1, 2)
    here, there = world.watch("orders", after=2), world.watch("orders", after=2)
    session = world.session({"orders": Start(2)})
    behind = world.open(session)
    for peer in (here, there, behind):
        peer.events()
    session.places["orders"].lower(1)
    world.append("orders", 3)
    assert (seqs(here), seqs(there), seqs(behind)) == ([3], [3], [2, 3])


def test_a_watcher_whose_first_read_is_under_way_is_told_what_a_first_read_is_told(
    world: World,
) -> None:
    world.put("orders", cap_records=1)
    peers = group(world, 2)
    world.append("orders", 1)
    world.runner.held = True
    peers.append(world.watch("orders", after=1))
    world.runner.held = False
    world.append("orders", 2, 3)
    world.runner.release()
    world.settle()
    tombstones = [[e for e in peer.events() if e.event == "tombstone"] for peer in peers]
    assert [t.data["reason"] for (t,) in tombstones] == ["cap", "cap", "from_seq_too_old"]


def test_a_watcher_left_in_the_old_instance_of_a_topic_is_told_of_the_new_one(
    world: World,
) -> None:
    here = group(world, 2)
    session = world.session({"orders": Start()})
    there = world.open(session)
    there.events()
    session.places["orders"].epoch -= 1
    world.append("orders", 1)
    assert [peer.names() for peer in here] == [["record", "caught-up"]] * 2
    assert there.names() == ["tombstone", "record", "caught-up"]


def test_watchers_that_want_it_otherwise_get_it_so(world: World) -> None:
    plain, mine = group(world, 2), group(world, 2, Options(nodes=frozenset({"me"})))
    world.append("orders", 1, node="me")
    assert [seqs(peer) for peer in plain + mine] == [[1], [1], [], []]
    world.append("orders", 2)
    assert [seqs(peer) for peer in plain + mine] == [[2], [2], [2], [2]]


def test_streams_of_one_session_split_the_records(world: World) -> None:
    first = group(world, 1)[0]
    session = world.session({"orders": Start()})
    one, other = world.open(session), world.open(session)
    for n in range(4):
        world.append("orders", n)
    assert seqs(first) == [1, 2, 3, 4]
    assert sorted(seqs(one) + seqs(other)) == [1, 2, 3, 4]


# Slow readers


def test_a_slow_watcher_in_a_group_queues_within_its_bounds_and_loses_nothing(
    world: World,
) -> None:
    quick = group(world, 2)
    slow = join(world, Peer(), bounds=QueueBounds(frames=4, bytes=1 << 20))
    quick += group(world, 2)
    slow.stalled = True
    for n in range(10):
        world.append("orders", n)
    assert world.delivery.lagged_total == 1
    assert slow.queued_bytes <= max(map(len, quick[0].chunks)), "one piece is with the transport"
    for peer in quick:
        assert seqs(peer) == list(range(1, 11))
    slow.catch_up()
    world.settle()
    kinds = [event.event for event in slow.events()]
    assert kinds == ["record", "caught-up"] * 3 + ["error", "record", "caught-up"]
    world.append("orders", 10)
    assert seqs(slow) == [11], "and it is one of the group again"


def test_frames_queued_for_a_watcher_in_a_group_are_taken_back_when_it_leaves(
    world: World,
) -> None:
    group(world, 1)
    session = world.session({"orders": Start()})
    peer = world.open(session)
    peer.stalled = True
    for n in range(4):
        world.append("orders", n)
    peer.leave()
    assert session.places["orders"].cursor == 1, "the transport had taken the first"
    assert seqs(world.open(session)) == [2, 3, 4]


def test_a_withheld_topic_is_withheld_from_the_whole_group(world: World) -> None:
    peers = group(world, 3)
    world.delivery.changes.withheld = lambda topic: True
    world.append("orders", 1)
    for peer in peers:
        (notice,) = peer.events()
        assert notice.data["reason"] == "pressure"
    world.delivery.changes.withheld = lambda topic: False
    world.append("orders", 2)
    for peer in peers:
        assert seqs(peer) == [1, 2]


def test_records_sent_to_a_group_put_heartbeats_off(world: World) -> None:
    peers = [world.watch("orders", heartbeat_ms=1000) for _ in range(2)]
    for peer in peers:
        peer.events()
    world.advance(900)
    world.append("orders", 1)
    world.advance(999)
    for peer in peers:
        assert [event.comment for event in peer.events()] == [None, None]
    world.advance(1)
    for peer in peers:
        assert [event.event for event in peer.events()] == [None]


# The end of some of them


def test_a_watcher_that_ends_during_the_walk_ends_alone(world: World) -> None:
    before, leaving, after = group(world, 2), Fateful(), None
    join(world, leaving)
    after = group(world, 2)
    leaving.fate.append(leaving.leave)
    world.append("orders", 1)
    world.append("orders", 2)
    for peer in before + after:
        assert seqs(peer) == [1, 2]
    assert seqs(leaving) == []
    assert world.ended == 1


def test_a_watcher_that_another_one_ends_during_the_walk_gets_nothing(world: World) -> None:
    group(world, 1)
    ending, ended = Fateful(), Peer()
    join(world, ending)
    join(world, ended)
    last = group(world, 1)[0]
    ending.fate.append(ended.leave)
    world.append("orders", 1)
    assert (seqs(ending), seqs(ended), seqs(last)) == ([1], [], [1])


def test_a_watcher_that_leaves_between_two_slices_gets_nothing(world: World) -> None:
    peers = group(world, MANY)
    world.append("orders", 1, settle=False)
    world.turn()
    peers[-2].leave()
    world.settle()
    assert (seqs(peers[-2]), seqs(peers[-1])) == ([], [1])


def test_a_failing_watcher_silences_nobody_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    before = group(world, 2)
    failing = Fateful()
    join(world, failing)
    after = group(world, 2)
    failing.fate.append(fail)
    world.append("orders", 1)
    assert "failed" in caplog.text
    caplog.clear()
    for peer in before + after:
        assert seqs(peer) == [1]
    world.append("orders", 2)
    assert seqs(failing) == [1, 2], "what it was not sent it gets with the next"


def test_a_topic_dropped_during_a_walk_is_told_to_everybody(world: World) -> None:
    peers = group(world, MANY)
    world.append("orders", 1, settle=False)
    world.turn()
    world.drop("orders")
    for peer in peers[:WALK]:
        assert peer.names() == ["record", "caught-up", "topic-deleted", "error"]
    for peer in peers[WALK:]:
        assert peer.names() == ["topic-deleted", "error"]


def test_a_topic_made_anew_during_a_walk_is_read_from_its_start(world: World) -> None:
    peers = group(world, MANY)
    world.append("orders", "old", settle=False)
    world.turn()
    world.recreate("orders", 2)
    for peer in peers:
        shown = [event for event in peer.events() if event.event in ("tombstone", "record")]
        assert [event.event for event in shown[-2:]] == ["tombstone", "record"]
        assert [record["$seq"] for record in shown[-1].data["records"]] == [1, 2]


def test_nobody_waits_for_a_topic_whose_group_has_gone(world: World) -> None:
    peers = group(world, 3)
    assert world.delivery.changes.is_awaited(world.topic("orders"))
    for peer in peers:
        peer.leave()
    assert not world.delivery.changes.is_awaited(world.topic("orders"))


# Sockets


def test_sockets_and_event_streams_of_a_topic_get_their_own_frames(world: World) -> None:
    peers, clients = group(world, 2), [Client(world), Client(world)]
    for client in clients:
        client.subscribe("orders")
        client.wire.messages()
    world.append("orders", 1)
    for client in clients:
        assert client.wire.ops() == ["record", "caught_up"]
    for peer in peers:
        assert peer.names() == ["record", "caught-up"]


def test_a_second_topic_brings_back_the_order_of_names(world: World) -> None:
    world.put("audit")
    first, client = Client(world), Client(world)
    for each in (first, client):
        each.subscribe("orders")
    client.subscribe("audit")
    client.wire.messages()
    world.append("orders", 1, settle=False)
    world.append("audit", 1, settle=False)
    world.settle()
    shown = [message["topic"] for message in client.wire.messages()]
    assert shown == ["audit", "audit", "orders", "orders"]


def test_a_socket_that_leaves_its_group_during_a_walk_misses_nothing(world: World) -> None:
    world.put("audit")
    group(world, 1)
    clients = [Client(world) for _ in range(MANY)]
    for client in clients:
        client.subscribe("orders")
    leaving = clients[-1]
    leaving.wire.messages()
    world.append("orders", 1, settle=False)
    world.turn()
    leaving.subscribe("audit")
    shown = [(message["op"], message["topic"]) for message in leaving.wire.messages()]
    assert sorted(shown) == [
        ("caught_up", "audit"),
        ("caught_up", "orders"),
        ("record", "orders"),
    ]


def test_a_socket_that_leaves_its_group_takes_the_news_of_the_next_walk_along(
    world: World,
) -> None:
    world.put("audit")
    clients = [Client(world) for _ in range(4 * WALK)]
    for client in clients:
        client.subscribe("orders")
    leaving = clients[0]
    leaving.wire.messages()
    world.append("orders", 1, settle=False)
    world.turn()
    world.append("orders", 2, settle=False)
    world.turn()
    leaving.subscribe("audit")
    shown = [message["to_seq"] for message in leaving.wire.messages() if "to_seq" in message]
    assert shown == [1, 2]


def test_a_socket_that_leaves_one_of_two_topics_still_gets_the_other(world: World) -> None:
    world.put("audit")
    client = Client(world)
    client.subscribe("orders")
    client.subscribe("audit")
    client.feed.unfollow("audit")
    client.wire.messages()
    world.append("orders", 1)
    world.append("audit", 1)
    assert [message["topic"] for message in client.wire.messages()] == ["orders", "orders"]
    client.feed.unfollow("orders")
    assert not world.delivery.changes.is_awaited(world.topic("orders"))

"""What a watch delivers over a real connection."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.blackbox.api_client import burst
from tests.blackbox.conftest import PATIENCE_S, ServerProcess
from tests.blackbox.event_client import (
    EventStream,
    gauge,
    put,
    stalled_socket,
    wait_until_gauge,
    watch,
    write,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not mind each other."""
    root: Path = tmp_path_factory.mktemp("streams")
    server = ServerProcess(root, {"TOPICS_TEST_MIN_HEARTBEAT_MS": "20"}, ())
    yield server.start()
    server.end()


def test_a_record_frame_is_exactly_as_documented(shared: ServerProcess) -> None:
    ack = write(shared, "bytes", {"sku": "MUG-2"}, node="pos-1")
    with EventStream(shared, watch(shared, "bytes")["stream_url"]) as stream:
        _, record, caught_up = stream.until("caught-up")
    ts = record.data["records"][0]["$ts"]
    assert record.raw == (
        "id: eyJieXRlcyI6MX0\n"
        "event: record\n"
        'data: {"topic":"bytes","from_seq":0,"head_seq":1,"records":'
        f'[{{"$seq":1,"$ts":{ts},"$node":"pos-1","data":{{"sku":"MUG-2"}}}}],"to_seq":1}}\n'
    )
    assert caught_up.data == {"topic": "bytes", "head_seq": ack["head_seq"]}


def test_an_append_is_pushed_to_an_open_stream(shared: ServerProcess) -> None:
    put(shared, "pushed")
    with EventStream(shared, watch(shared, "pushed")["stream_url"]) as stream:
        stream.until("caught-up")
        write(shared, "pushed", "now")
        record, caught_up = stream.until("caught-up")
        assert (record.seqs, caught_up.positions) == ([1], {"pushed": 1})


def test_options_shape_the_frames(shared: ServerProcess) -> None:
    records = [{"data": n, "tag": "room:4", "meta": {"fw": 1}} for n in range(3)]
    httpx.post(
        f"{shared.url}/v0/topics/shaped", json={"records": records}, timeout=PATIENCE_S
    ).raise_for_status()
    session = watch(
        shared, "shaped", limit=2, include_tags=True, include_meta=False, include_data=False
    )
    with EventStream(shared, session["stream_url"]) as stream:
        _, first, second, _ = stream.until("caught-up")
    assert (first.seqs, second.seqs) == ([1, 2], [3])
    assert set(first.data["records"][0]) == {"$seq", "$ts", "$tag"}


def test_a_predicate_keeps_other_tags_out(shared: ServerProcess) -> None:
    records = [{"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}]
    httpx.post(
        f"{shared.url}/v0/topics/picked", json={"records": records}, timeout=PATIENCE_S
    ).raise_for_status()
    session = watch(shared, "picked", match=["tag", "Eq", "b"])
    with EventStream(shared, session["stream_url"]) as stream:
        _, record, caught_up = stream.until("caught-up")
    assert record.seqs == [2]
    assert caught_up.positions == {"picked": 2}


def test_silence_is_filled_with_heartbeats(shared: ServerProcess) -> None:
    put(shared, "silent")
    session = watch(shared, "silent", heartbeat_ms=1)
    with EventStream(shared, session["stream_url"]) as stream:
        stream.until("caught-up")
        beat = stream.next_or_beat()
        assert beat.raw.startswith(": hb ")
        assert beat.raw.removeprefix(": hb ").strip().isdecimal()


def test_a_dropped_topic_ends_the_stream_at_once(shared: ServerProcess) -> None:
    write(shared, "doomed", 1)
    with EventStream(shared, watch(shared, "doomed")["stream_url"]) as stream:
        stream.until("caught-up")
        httpx.delete(f"{shared.url}/v0/topics/doomed", timeout=PATIENCE_S).raise_for_status()
        deleted, gone = stream.rest()
    assert deleted.data == {"topic": "doomed", "head_seq": 0, "reason": "deleted"}
    assert deleted.positions == {"doomed": 1}
    assert gone.data["reason"] == "no_topics"


def test_an_earlier_id_redelivers_exactly_what_followed_it(shared: ServerProcess) -> None:
    write(shared, "again", 1, 2, 3, 4)
    path = watch(shared, "again", limit=1)["stream_url"]
    with EventStream(shared, path) as stream:
        events = stream.until("caught-up")
    first = events[1]
    assert first.seqs == [1]
    with EventStream(shared, path, {"Last-Event-ID": str(first.id)}) as stream:
        assert [e.seqs for e in stream.until("caught-up") if e.event == "record"] == [[2], [3], [4]]
    with EventStream(shared, path, {"Last-Event-ID": "eyJhZ2FpbiI6OTk5fQ"}) as stream:
        assert [e.event for e in stream.until("caught-up")] == [None, "caught-up"]


def test_the_longest_id_there_can_be_resumes_a_stream(shared: ServerProcess) -> None:
    """As many topics as a watch may have, with names as long as names may be."""
    names = [f"{n:03}".ljust(255, "x") for n in range(256)]
    burst(shared, "PUT", [f"/v0/topics/{name}" for name in names], {})
    url = watch(shared, *names)["stream_url"]
    with EventStream(shared, url) as stream:
        (_, caught_up) = stream.until("caught-up")
    assert caught_up.positions == dict.fromkeys(names, 0)
    assert caught_up.id is not None
    with EventStream(shared, url, {"Last-Event-ID": caught_up.id}) as stream:
        assert stream.status == 200
        assert stream.until("caught-up")[-1].id == caught_up.id


def test_a_reconnect_supersedes_and_a_garbage_id_does_not(shared: ServerProcess) -> None:
    write(shared, "taken", 1)
    path = watch(shared, "taken")["stream_url"]
    with EventStream(shared, path) as older:
        place = older.until("caught-up")[-1].id
        with EventStream(shared, path, {"Last-Event-ID": "%%%"}) as other:
            assert other.until("caught-up")[-1].event == "caught-up"
            with EventStream(shared, path, {"Last-Event-ID": str(place)}) as newer:
                for ended in (older, other):
                    (gone,) = ended.rest()
                    assert (gone.data["code"], gone.data["reason"]) == (410, "superseded")
                newer.until("caught-up")
                write(shared, "taken", 2)
                assert newer.next().seqs == [2]


def test_a_topic_recreated_while_away_is_read_from_its_start(shared: ServerProcess) -> None:
    write(shared, "reborn", 1, 2, 3)
    path = watch(shared, "reborn")["stream_url"]
    with EventStream(shared, path) as stream:
        place = stream.until("caught-up")[-1].id
    httpx.delete(f"{shared.url}/v0/topics/reborn", timeout=PATIENCE_S).raise_for_status()
    write(shared, "reborn", *range(7))
    with EventStream(shared, path, {"Last-Event-ID": str(place)}) as stream:
        _, tombstone, record, _ = stream.until("caught-up")
    assert tombstone.data["reason"] == "from_seq_too_old"
    assert (tombstone.data["gap_from"], tombstone.data["gap_to"]) == (1, 7)
    assert tombstone.positions == {"reborn": 0}
    assert record.seqs == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_strong_watch_delivers_every_class(shared: ServerProcess, durability: str) -> None:
    topic = f"strong-{durability}"
    put(shared, topic, durability=durability)
    session = watch(shared, topic, consistency="strong")
    with EventStream(shared, session["stream_url"]) as stream:
        stream.until("caught-up")
        for n in (1, 2):
            write(shared, topic, n)
            record, caught_up = stream.until("caught-up")
            assert (record.seqs, record.data["head_seq"]) == ([n], n)
            assert caught_up.data["head_seq"] == n


def test_a_reader_that_stops_reading_is_told_so_and_misses_nothing(shared: ServerProcess) -> None:
    put(shared, "slow")
    lagged = gauge(shared, "streams_lagged_total")
    payload = "x" * 500_000
    with stalled_socket(shared, watch(shared, "slow")["stream_url"]) as sock:
        for n in range(40):
            write(shared, "slow", [n, payload])
        wait_until_gauge(shared, "streams_lagged_total", lagged + 1)
        received = read_until(sock, b'"head_seq":40}\n\n')
    assert received.count(b"slow_consumer") == 1
    for n in range(40):
        assert b'"data":[%d,"xxx' % n in received


def read_until(sock: socket.socket, end: bytes) -> bytes:
    """Everything up to some bytes, which come last."""
    pieces = [b""]
    while end not in pieces[-1][-100:]:
        data = sock.recv(1 << 20)
        assert data, "a slow reader is never thrown out"
        # The end may be cut in two.
        pieces[-1:] = [pieces[-1] + data] if len(data) < 100 else [pieces[-1], data]
    return b"".join(pieces)


def test_a_thousand_records_reach_a_stream_in_order(shared: ServerProcess) -> None:
    put(shared, "many")
    with EventStream(shared, watch(shared, "many")["stream_url"]) as stream:
        stream.until("caught-up")
        for start in range(0, 1000, 100):
            write(shared, "many", *range(start, start + 100))
        seqs: list[int] = []
        while len(seqs) < 1000:
            event = stream.next()
            if event.event == "record":
                seqs += event.seqs
    assert seqs == list(range(1, 1001))


def test_streams_work_over_http2(shared: ServerProcess) -> None:
    write(shared, "two", 1)
    path = watch(shared, "two")["stream_url"]
    with (
        httpx.Client(http1=False, http2=True, timeout=PATIENCE_S) as client,
        client.stream("GET", shared.url + path) as answer,
    ):
        assert answer.http_version == "HTTP/2"
        received = b""
        for piece in answer.iter_raw():
            received += piece
            if b"caught-up" in received:
                break
    assert received.startswith(b"retry: 2000\n\nid: ")


def test_a_long_poll_is_answered_by_an_append(shared: ServerProcess) -> None:
    put(shared, "polled")
    body = b'{"wait_ms":20000}'
    with socket.create_connection((shared.host, shared.port), timeout=PATIENCE_S) as sock:
        sock.sendall(
            b"POST /v0/topics/polled/diff HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        write(shared, "polled", "news")
        assert b'"data":"news"' in sock.recv(65536)


def test_shutdown_ends_streams_with_a_frame_of_their_own(
    tmp_path: Path,
) -> None:
    server = ServerProcess(tmp_path, {}, ()).start()
    try:
        write(server, "last", 1)
        with EventStream(server, watch(server, "last")["stream_url"]) as stream:
            stream.until("caught-up")
            server.signal(signal.SIGTERM)
            (last,) = stream.rest()
        assert last.data["code"] == "server_shutting_down"
        assert last.positions == {"last": 1}
        assert server.wait() == 0
    finally:
        server.end()

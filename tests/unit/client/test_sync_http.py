import pickle
import select
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from tests.unit.client.conftest import Script
from tests.unit.client.fake_server import Peer, answering, reply

from topics.client.sync_http import Http
from topics.errors import (
    Closed,
    InvalidRequest,
    NotAcceptable,
    Throttled,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
)

NOT_FOUND = b'{"error":{"code":"topic_not_found","message":"no such topic","detail":{"topic":"t"}}}'
BUSY = b'{"error":{"code":"throttled","message":"later","detail":{"retry_after_ms":20}}}'


def hang_up_after_request(peer: Peer) -> None:
    peer.request()


def answer_only_the_first(peer: Peer) -> None:
    peer.request()
    peer.send(reply())
    peer.request()
    peer.wait_for_end()


def test_one_connection_serves_many_requests(script: Script) -> None:
    server = script(answering(reply(body=b"1"), reply(body=b"2"), reply(body=b"3")))
    with Http(server.url) as http:
        assert [http.request("GET", "/x").body for _ in range(3)] == [b"1", b"2", b"3"]
    assert server.connections == 1


def test_a_request_carries_token_query_type_and_length(script: Script) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def act(peer: Peer) -> None:
        seen.append(peer.request())
        peer.send(reply())

    with Http(script(act).url + "/base/", token="s3cret") as http:
        http.request("POST", "/v0/x", body=b'{"a":1}', query={"q": "a b&c"}, headers={"X-A": "b"})
    head, body = seen[0]
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/v0/x?q=a%20b%26c HTTP/1.1"
    assert "Authorization: Bearer s3cret" in lines
    assert "Content-Type: application/json" in lines
    assert "Content-Length: 7" in lines
    assert "X-A: b" in lines
    assert body == b'{"a":1}'


@pytest.mark.parametrize("pieces", [1, 7])
def test_an_answer_may_come_in_chunks_and_in_pieces(script: Script, pieces: int) -> None:
    said = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Two: b\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )

    def act(peer: Peer) -> None:
        peer.request()
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(said), pieces):
            peer.send(said[start : start + pieces])

    with Http(script(act).url) as http:
        answer = http.request("GET", "/x")
    assert (answer.status, answer.body, answer.headers["x-two"]) == (200, b"abcde", "b")


def test_a_body_without_length_ends_with_the_connection(script: Script) -> None:
    with Http(script(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it")).url) as http:
        assert http.request("GET", "/x").body == b"all of it"


def test_a_refusal_is_raised_as_the_error_of_the_embedded_log(script: Script) -> None:
    http = Http(script(answering(reply(404, NOT_FOUND))).url)
    with http, pytest.raises(TopicNotFound, match="no such topic") as caught:
        http.request("GET", "/x")
    assert caught.value.detail == {"topic": "t"}
    assert caught.value.code == "topic_not_found"


def test_words_of_a_proxy_are_an_error_that_keeps_the_status(script: Script) -> None:
    server = script(answering(reply(418, b"<html>teapot"), reply(401, b"who?")))
    with Http(server.url) as http:
        with pytest.raises(TopicsError, match="teapot") as caught:
            http.request("GET", "/x")
        assert caught.value.code == "http_418"
        with pytest.raises(Unauthorized):
            http.request("GET", "/x")


def test_a_throttled_call_waits_as_long_as_asked_and_is_repeated(script: Script) -> None:
    server = script(answering(reply(429, BUSY), reply(429, BUSY), reply(body=b"done")))
    begun = time.monotonic()
    with Http(server.url) as http:
        # Not idempotent: 429 leaves no trace, so that it may be repeated all the same.
        assert http.request("POST", "/x", body=b"1").body == b"done"
    assert time.monotonic() - begun >= 0.04


def test_retry_after_of_the_header_is_obeyed(script: Script) -> None:
    refused = reply(503, b'{"error":{"code":"not_ready","message":"m"}}', "Retry-After: 1")
    begun = time.monotonic()
    with Http(script(answering(refused, reply())).url) as http:
        http.request("POST", "/x", body=b"1")
    assert time.monotonic() - begun >= 1.0


def test_repeats_are_bounded(script: Script) -> None:
    server = script(answering(*[reply(429, BUSY)] * 3))
    with Http(server.url, retries=2) as http, pytest.raises(Throttled):
        http.request("GET", "/x")


def test_a_call_that_may_have_been_carried_out_is_not_repeated(script: Script) -> None:
    server = script(hang_up_after_request, answering(reply()))
    with Http(server.url) as http:
        with pytest.raises(Unreachable) as caught:
            http.request("POST", "/x", body=b"1")
        assert caught.value.sent
        assert http.request("POST", "/x", body=b"1").status == 200


def test_a_harmless_call_is_repeated_when_the_answer_is_lost(script: Script) -> None:
    server = script(hang_up_after_request, hang_up_after_request, answering(reply(body=b"ok")))
    with Http(server.url) as http:
        assert http.request("POST", "/x", body=b"1", idempotent=True).body == b"ok"
    assert server.connections == 3


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(script: Script) -> None:
    closed = threading.Event()

    def act(peer: Peer) -> None:
        answering(reply())(peer)
        peer.socket.shutdown(socket.SHUT_RDWR)
        closed.set()

    server = script(act, answering(reply(body=b"again")))
    with Http(server.url, retries=0) as http:
        http.request("POST", "/x", body=b"1")
        assert closed.wait(60)
        assert http.request("POST", "/x", body=b"1").body == b"again"


def test_a_server_that_takes_too_long_is_given_up(script: Script) -> None:
    with Http(script(answer_only_the_first).url, retries=0) as http:
        http.request("GET", "/x")  # from here on there is a connection: the next is sent at once
        with pytest.raises(Unreachable, match="too long") as caught:
            http.request("GET", "/x", timeout=0.1)
    assert caught.value.sent


def test_dripping_bytes_do_not_extend_the_deadline(script: Script) -> None:
    over = threading.Event()

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while not over.is_set():
            peer.send(b"X: y\r\n")
            over.wait(0.02)

    with Http(script(act).url, retries=0, timeout=0.2) as http, pytest.raises(Unreachable):
        http.request("GET", "/x")
    over.set()


def test_nobody_listening_is_unreachable_and_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Http(f"http://127.0.0.1:{port}", retries=1) as http, pytest.raises(Unreachable) as caught:
        http.request("POST", "/x", body=b"1")
    assert not caught.value.sent
    assert caught.value.code == "unreachable"


def test_a_connection_to_itself_is_not_taken_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_itself(address: object, timeout: float) -> socket.socket:
        # What the system does when the port it picks for us is the very one we ask for.
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        return sock

    monkeypatch.setattr(socket, "create_connection", to_itself)
    with Http("http://127.0.0.1:1", retries=0) as http, pytest.raises(Unreachable) as caught:
        http.request("POST", "/x", body=b"1")
    assert not caught.value.sent


def test_something_that_is_no_http_is_unreachable(script: Script) -> None:
    server = script(answering(b"220 mail.example ESMTP\r\n"))
    with Http(server.url, retries=0) as http, pytest.raises(Unreachable, match="HTTP"):
        http.request("GET", "/x")


def test_a_large_body_refused_early_still_gives_the_refusal(script: Script) -> None:
    refused = b'{"error":{"code":"payload_too_large","message":"too big"}}'

    def act(peer: Peer) -> None:
        peer.socket.recv(1000)
        peer.send(reply(413, refused, "Connection: close"))
        peer.wait_for_end()

    with Http(script(act).url) as http, pytest.raises(TopicsError, match="too big"):
        http.request("POST", "/x", body=b"1" * (32 << 20), timeout=60.0)


def test_a_stream_gives_parts_as_they_arrive(script: Script) -> None:
    go_on = threading.Event()

    def act(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        go_on.wait(60)
        peer.send(b"3\r\ntwo\r\n0\r\n\r\n")

    with Http(script(act).url) as http, http.stream("GET", "/x") as stream:
        assert stream.status == 200
        parts = iter(stream)
        assert next(parts) == b"one"
        go_on.set()
        assert b"".join(parts) == b"two"


def test_a_silent_stream_is_noticed(script: Script) -> None:
    def act(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        peer.wait_for_end()

    # A server that is too slow to begin within that time is asked again.
    url = script(*[act] * 4).url
    with Http(url, retries=3) as http, http.stream("GET", "/x", timeout=1.5) as stream:
        parts = iter(stream)
        assert next(parts) == b"one"
        with pytest.raises(Unreachable, match="too long"):
            next(parts)


def test_a_refused_stream_raises_on_entry(script: Script) -> None:
    body = b'{"error":{"code":"not_acceptable","message":"m"}}'
    http = Http(script(answering(reply(406, body))).url)
    with http, pytest.raises(NotAcceptable), http.stream("GET", "/x"):
        pass


def test_a_pickled_client_connects_anew(script: Script) -> None:
    server = script(answering(reply(body=b"1")), answering(reply(body=b"2")))
    with Http(server.url, token="k", timeout=7.0, retries=2) as http:
        assert http.request("GET", "/x").body == b"1"
        http.close()
        with pickle.loads(pickle.dumps(http)) as copy:
            assert copy.request("GET", "/x").body == b"2"
            assert (copy.timeout, copy.retries, copy.url) == (7.0, 2, http.url)


FORKING = """
import os, sys
from topics.client.sync_http import Http
http = Http(sys.argv[1])
print(http.request("GET", "/x").body.decode(), flush=True)
if os.fork() == 0:
    print(http.request("GET", "/x").body.decode(), flush=True)
    os._exit(0)
os.wait()
print(http.request("GET", "/x").body.decode(), flush=True)
"""


def test_a_forked_child_does_not_share_connections(script: Script) -> None:
    parent = answering(reply(body=b"parent"), reply(body=b"parent again"))
    server = script(parent, answering(reply(body=b"child")))
    command = [sys.executable, "-c", FORKING, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:3] == ["parent", "child", "parent again"]


def test_threads_share_a_bounded_pool(script: Script) -> None:
    free = threading.Event()

    def act(peer: Peer) -> None:
        peer.request()
        free.wait(60)
        peer.send(reply(body=b"slow"))
        while peer.request()[0]:
            peer.send(reply(body=b"quick"))

    server = script(act)
    with Http(server.url, connections=1) as http:
        bodies: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: bodies.append(http.request("GET", "/x").body))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        free.set()
        for thread in threads:
            thread.join(60)
    assert sorted(bodies) == [b"quick", b"quick", b"quick", b"slow"]
    assert server.connections == 1


def test_a_closed_client_says_so(script: Script) -> None:
    http = Http("http://127.0.0.1:1")
    http.close()
    http.close()
    with pytest.raises(Closed):
        http.request("GET", "/x")


@pytest.mark.parametrize(
    "url", ["ftp://h", "http://", "h:4000", "http://h:x", "http://u:p@h", "http://h/?q=1"]
)
def test_an_address_that_makes_no_sense_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequest):
        Http(url)


@pytest.mark.parametrize("path", ["x", "/a b", "/a\r\nX: y", "/ü"])
def test_a_path_that_would_break_the_request_is_refused(path: str) -> None:
    with Http("http://127.0.0.1:1") as http, pytest.raises(InvalidRequest):
        http.request("GET", path)


def test_a_header_cannot_smuggle_a_line() -> None:
    with pytest.raises(InvalidRequest):
        Http("http://127.0.0.1:1", token="a\r\nX: y")


def test_a_busy_pool_does_not_wait_for_ever(script: Script) -> None:
    arrived, asserted = threading.Event(), threading.Event()

    def act(peer: Peer) -> None:
        peer.request()
        arrived.set()
        asserted.wait(60)
        peer.send(reply())

    with Http(script(act).url, connections=1, retries=0) as http:
        thread = threading.Thread(target=http.request, args=("GET", "/x"))
        thread.start()
        assert arrived.wait(60)
        with pytest.raises(Unreachable, match="busy") as caught:
            http.request("GET", "/x", timeout=0.05)
        assert not caught.value.sent
        asserted.set()
        thread.join(60)


def test_a_connection_that_is_reset_at_once_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.create_connection

    def connected_and_reset(*args: object, **options: object) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sock = connect(listener.getsockname())
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        select.select([sock], [], [], 60)
        return sock

    monkeypatch.setattr(socket, "create_connection", connected_and_reset)
    with Http("http://127.0.0.1:9", retries=0) as http, pytest.raises(Unreachable) as caught:
        http.request("GET", "/x")
    assert not caught.value.sent

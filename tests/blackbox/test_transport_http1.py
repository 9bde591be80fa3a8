"""HTTP/1.1 on the wire: framing, order, keep-alive, refusals and the ways a client can leave."""

import http.client
import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from tests.blackbox.transport_server import WAIT_S, Served, serving

from topics.http.limits import KIB, Limits
from topics.http.messages import Response


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


def code_of(body: bytes) -> str:
    code = json.loads(body)["error"]["code"]
    assert isinstance(code, str)
    return code


# Requests


def test_curl_is_answered_in_its_own_version(shared: Served) -> None:
    head = subprocess.run(
        ["curl", "-si", "--http1.1", shared.url + "/echo", "-d", "hello"],
        capture_output=True,
        check=True,
    ).stdout
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: application/json\r\n" in head
    assert head.endswith(b"\r\n\r\nhello")


def test_a_request_cut_at_any_byte_is_the_same_request(shared: Served) -> None:
    request = b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi"
    with shared.connect() as wire:
        for cut in range(1, len(request)):
            wire.send(request[:cut])
            wire.send(request[cut:])
            assert wire.read().body == b"hi"


def test_a_connection_serves_many_requests(shared: Served) -> None:
    with httpx.Client(base_url=shared.url, timeout=WAIT_S) as client:
        for number in range(20):
            assert client.post("/echo", content=b"%d" % number).content == b"%d" % number
    assert shared.app.requests[-1].version == "1.1"


def test_the_application_sees_method_path_query_headers_and_peer(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/a%2Fb/c%3Ed?x=1&x=2&bad=%zz", "X-Twice: 1", "X-TWICE: 2", method="DELETE")
        assert wire.read().status == 200
        peer = "{}:{}".format(*wire.sock.getsockname())
    request = served.app.requests[0]
    assert (request.method, request.version, request.peer) == ("DELETE", "1.1", peer)
    assert request.segments == ("a/b", "c>d")
    assert request.query.every("x") == ("1", "2")
    assert request.query.text("bad") == "%zz"
    assert request.headers[b"x-twice"] == b"1, 2"


def test_an_absolute_target_names_its_path(served: Served) -> None:
    with served.connect() as wire:
        wire.get("http://example.org/echo?a=1")
        assert wire.read().status == 200
    assert served.app.requests[0].path == b"/echo"


def test_connection_close_is_honoured(shared: Served) -> None:
    with shared.connect() as wire:
        wire.get("/ok", "Connection: close")
        assert wire.read().headers["connection"] == "close"
        assert wire.at_end()


def test_http_1_0_closes_unless_asked_to_stay(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(b"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert wire.read().headers["connection"] == "keep-alive"
        wire.send(b"GET /ok HTTP/1.0\r\n\r\n")
        assert wire.read().headers["connection"] == "close"
        assert wire.at_end()


def test_head_has_the_headers_of_get_and_no_body(shared: Served) -> None:
    with shared.connect() as wire:
        wire.get("/big?n=5000", method="HEAD")
        wire.get("/ok")
        assert wire.read(method="HEAD").headers["content-length"] == "5000"
        assert wire.read().body == b"{}"


def test_no_content_has_neither_length_nor_type(shared: Served) -> None:
    with shared.connect() as wire:
        wire.get("/none")
        answer = wire.read()
        assert answer.status == 204
        assert set(answer.headers) == {"date"}
        wire.get("/ok")
        assert wire.read().status == 200


# Pipelining


def test_pipelined_answers_keep_the_order_of_the_requests(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/hold")
        for number in range(3):
            wire.post("/echo", b"%d" % number)
        served.app.wait_until(lambda: len(served.app.held) == 1)
        served.do(lambda: served.app.held[0](Response(200, b"first")))
        assert [wire.read().body for _ in range(4)] == [b"first", b"0", b"1", b"2"]


def test_a_pipelined_request_of_another_target_waits_for_the_one_before(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        wire.get("/hold")
        wire.get("/ok")
        app.wait_until(lambda: app.begun == ["/hold", "/ok"])
        assert served.do(lambda: list(app.run)) == ["/hold"]
        served.do(lambda: app.held[0](Response(200, b"1")))
        assert [wire.read().body, wire.read().body] == [b"1", b"{}"]


def test_pipelined_requests_of_one_target_run_side_by_side(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        for _ in range(3):
            wire.get("/hold")
        app.wait_until(lambda: len(app.held) == 3)
        for number in (2, 1, 0):
            reply = app.held[number]
            served.do(lambda r=reply, n=number: r(Response(200, b"%d" % n)))  # type: ignore[misc]
        assert [wire.read().body for _ in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("path", ["/ok", "/forbidden"])
def test_a_flood_of_pipelined_requests_is_read_only_so_far_ahead(served: Served, path: str) -> None:
    app = served.app
    request = f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n".encode()
    flood = request * 20_000
    with served.connect() as wire:
        wire.get("/hold")
        app.wait_until(lambda: len(app.held) == 1)
        wire.sock.setblocking(False)
        sent = 0
        while sent < len(flood):
            try:
                sent += wire.sock.send(flood[sent:])
            except BlockingIOError:
                break
        wire.sock.settimeout(WAIT_S)
        assert served.do(lambda: len(app.begun)) < 2000
        served.do(lambda: app.held[0](Response(200, b"go")))
        assert wire.read().body == b"go"
        for _ in range(sent // len(request)):
            assert wire.read().status == (200 if path == "/ok" else 403)


# Bodies


def test_a_late_refusal_is_given_in_its_turn_and_the_connection_goes_on(served: Served) -> None:
    with served.connect() as wire:
        wire.post("/late", b"x" * 1000)
        wire.get("/ok")
        assert [wire.read().status for _ in range(2)] == [401, 200]
    assert served.app.run == ["/ok"]


def test_a_client_that_leaves_before_its_late_refusal_is_forgotten(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/late")
        served.app.wait_until(lambda: served.app.begun == ["/late"])
        wire.reset()
    served.wait_for_no_connections()


def test_a_chunked_body_with_extensions_and_trailers_is_read(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(
            b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;note=x\r\nabc\r\n1\r\nd\r\n0\r\nX-Sum: 1\r\n\r\n"
        )
        assert wire.read().body == b"abcd"
        wire.get("/ok")
        assert wire.read().status == 200


def test_a_large_chunked_body_is_read_whole(shared: Served) -> None:
    body = bytes(range(256)) * 4000
    with httpx.Client(base_url=shared.url, timeout=WAIT_S) as client:
        pieces = (body[at : at + 10_000] for at in range(0, len(body), 10_000))
        assert client.post("/echo", content=pieces).content == body


@pytest.mark.parametrize(
    "broken",
    [
        b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /e HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET /ok HTTP/1.1\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nHost: t\r\n bad: folded\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nHost t\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: t\r\n\r\n",
    ],
)
def test_malformed_requests_get_400_and_the_connection_ends(shared: Served, broken: bytes) -> None:
    with shared.connect() as wire:
        wire.send(broken)
        answer = wire.read()
        assert (answer.status, code_of(answer.body)) == (400, "invalid_request")
        assert answer.headers["connection"] == "close"
        assert wire.at_end()


def test_a_malformed_request_is_answered_after_the_good_ones_before_it(served: Served) -> None:
    with served.connect() as wire:
        wire.send(b"GET /hold HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/9\r\n\r\n")
        served.app.wait_until(lambda: len(served.app.held) == 1)
        served.do(lambda: served.app.held[0](Response(200, b"good")))
        assert wire.read().body == b"good"
        assert wire.read().status == 400
        assert wire.at_end()


def test_another_version_of_http_is_505(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(b"GET /ok HTTP/2.0\r\nHost: t\r\n\r\n")
        assert wire.read().status == 505


def test_a_method_nobody_knows_is_405(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(b"BREW /pot HTTP/1.1\r\nHost: t\r\n\r\n")
        answer = wire.read()
        assert (answer.status, code_of(answer.body)) == (405, "method_not_allowed")


def test_bytes_that_never_were_http_are_met_with_silence(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(b"\x16\x03\x01\x02\x00\x01\x00")
        assert wire.at_end()


# Sizes


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    with serving(Limits(max_body_bytes=100_000, max_head_bytes=4 * KIB)) as served:
        yield served


def test_a_body_of_exactly_the_limit_is_allowed(small: Served) -> None:
    with small.connect() as wire:
        wire.post("/size", b"x" * 100_000)
        assert wire.read().body == b"100000"


def test_a_body_announced_too_large_is_refused_before_it_is_sent(small: Served) -> None:
    with small.connect() as wire:
        wire.send(b"POST /size HTTP/1.1\r\nHost: t\r\nContent-Length: 100001\r\n\r\n")
        answer = wire.read()
        assert (answer.status, code_of(answer.body)) == (413, "payload_too_large")
        assert wire.at_end()


def test_a_chunked_body_is_refused_where_it_passes_the_limit(small: Served) -> None:
    with small.connect() as wire:
        wire.send(b"POST /size HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.send(b"186a1\r\n" + b"x" * 100_001)
        assert wire.read().status == 413


def test_a_client_that_sends_everything_first_still_reads_its_413(small: Served) -> None:
    client = http.client.HTTPConnection(small.host, small.port, timeout=WAIT_S)
    try:
        client.request("POST", "/size", body=b"x" * 30_000_000)
        answer = client.getresponse()
        assert answer.status == 413
        assert code_of(answer.read()) == "payload_too_large"
    finally:
        client.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /ok HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 30_000,
        b"GET /" + b"x" * 30_000,
        b"GET /ok HTTP/1.1\r\nHost: t\r\n" + b"X-A: b\r\n" * 5_000,
    ],
)
def test_too_much_head_is_431(small: Served, head: bytes) -> None:
    with small.connect() as wire:
        wire.send(head)
        assert wire.read().status == 431
        assert wire.at_end()


def test_endless_trailers_are_refused(small: Served) -> None:
    with small.connect() as wire:
        wire.send(b"POST /size HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.send(b"0\r\nX: " + b"x" * 40_000)
        assert wire.read().status == 400


# The gate


def test_the_gate_refuses_before_the_body_and_a_small_body_keeps_the_connection(
    served: Served,
) -> None:
    with served.connect() as wire:
        wire.send(b"POST /forbidden HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\n")
        assert wire.read().status == 403
        wire.send(b"body")
        wire.get("/ok")
        assert wire.read().status == 200
    assert served.app.run == ["/ok"]
    served.app.wait_until(lambda: served.app.ended == [("/ok", 200)])


def test_expect_100_is_answered_when_the_gate_lets_the_request_in(shared: Served) -> None:
    with shared.connect() as wire:
        wire.send(
            b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert wire.file.readline() == b"\r\n"
        wire.send(b"hi")
        assert wire.read().body == b"hi"


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/forbidden", "X: y", 403),
        ("/echo", "Content-Encoding: br", 415),
    ],
)
def test_expect_100_gets_the_refusal_at_once(
    shared: Served, path: str, header: str, status: int
) -> None:
    with shared.connect() as wire:
        wire.send(
            f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n{header}\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        answer = wire.read()
        assert (answer.status, answer.interim) == (status, [])
        assert wire.at_end()


# Failures of the application


def test_an_exception_is_a_500_and_the_connection_survives(shared: Served) -> None:
    with shared.connect() as wire:
        for path in ("/boom", "/broken-gate"):
            wire.get(path)
            answer = wire.read()
            assert (answer.status, code_of(answer.body)) == (500, "internal")
        wire.get("/ok")
        assert wire.read().status == 200


# Slowness


@pytest.fixture(scope="module")
def hasty() -> Iterator[Served]:
    limits = Limits(head_timeout_s=0.2, body_timeout_s=0.2, min_body_rate=1000, linger_s=0.2)
    with serving(limits) as served:
        yield served


def first_words(served: Served, said: bytes) -> bytes:
    """The status line of the answer to these bytes and no more; the connection ends after it.

    On a busy machine the little time there is may be over before the server has looked at them.
    It then takes the connection for a silent one and ends it without a word: we come again.
    """
    for _ in range(50):
        with served.connect() as wire:
            wire.send(said)
            if line := wire.file.readline():
                wire.file.read()
                return line
    raise AssertionError("it never had a word for us")


def test_slow_headers_are_408(hasty: Served) -> None:
    assert first_words(hasty, b"GET /ok HT").startswith(b"HTTP/1.1 408 ")


def test_a_silent_connection_is_closed(hasty: Served) -> None:
    with hasty.connect() as wire:
        assert wire.at_end()


def test_half_a_preface_is_no_excuse(hasty: Served) -> None:
    with hasty.connect() as wire:
        wire.send(b"PRI * HT")
        assert wire.at_end()


def test_a_slow_body_is_408(hasty: Served) -> None:
    begun = b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhi"
    assert first_words(hasty, begun).startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed_in_the_end() -> None:
    with serving(Limits(idle_timeout_s=0.2)) as served, served.connect() as wire:
        wire.get("/ok")
        assert wire.read().status == 200
        assert wire.at_end()


def test_waiting_for_a_slow_answer_is_nobodys_fault(hasty: Served) -> None:
    app = hasty.app
    for _ in range(50):
        with hasty.connect() as wire:
            wire.get("/hold?slow")
            with hasty.connect() as other:
                assert other.at_end()  # several sweeps have passed
            if not app.held:
                continue  # the request came too late, see `first_words`
            hasty.do(lambda: app.held[-1](Response(200, b"late")))
            assert wire.read().body == b"late"
            return
    raise AssertionError("no request was ever held")


def test_a_client_that_does_not_read_is_not_read_either(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        wire.get("/big?n=30000000")
        app.wait_until(lambda: bool(app.run))
        for _ in range(20):
            wire.get("/big?n=3000")
        with served.connect() as other:
            other.get("/ok")
            assert other.read().status == 200
        assert served.do(lambda: app.run == ["/big?n=30000000", "/ok"])
        assert len(wire.read().body) == 30_000_000
        for _ in range(20):
            assert len(wire.read().body) == 3000


def test_a_client_that_never_reads_is_given_up() -> None:
    with serving(Limits(stall_timeout_s=0.2)) as served, served.connect() as wire:
        wire.get("/big?n=30000000")
        served.app.wait_until(lambda: bool(served.app.run))
        served.wait_for_no_connections()
        received = 0
        while data := wire.sock.recv(1 << 20):
            received += len(data)
        assert received < 30_000_000


# Leaving


def test_a_half_closed_client_gets_its_answers(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/hold")
        wire.get("/ok")
        wire.half_close()
        served.app.wait_until(lambda: len(served.app.held) == 1)
        served.do(lambda: served.app.held[0](Response(200, b"1")))
        assert [wire.read().body, wire.read().body] == [b"1", b"{}"]
        assert wire.at_end()


def test_a_reset_inside_a_body_ends_the_request_unanswered(served: Served) -> None:
    wire = served.connect()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhi")
    served.app.wait_until(lambda: served.app.begun == ["/echo"])
    wire.reset()
    served.app.wait_until(lambda: served.app.ended == [("/echo", None)])
    assert served.app.run == []


def test_a_client_that_leaves_is_reported_to_who_works_for_it(served: Served) -> None:
    app = served.app
    wire = served.connect()
    wire.get("/hold")
    app.wait_until(lambda: len(app.held) == 1)
    wire.reset()
    app.wait_until(lambda: app.gone == ["/hold"] and app.ended == [("/hold", None)])
    served.do(lambda: app.held[0](Response(200)))  # too late, and harmless


# Upgrades we do not do


def test_an_upgrade_to_h2c_is_ignored_with_and_without_a_body(shared: Served) -> None:
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    with shared.connect() as wire:
        wire.get("/ok", *upgrade)
        assert wire.read().status == 200
        wire.post("/echo", b"POST /smuggled HTTP/1.1\r\n\r\n", *upgrade)
        assert wire.read().body == b"POST /smuggled HTTP/1.1\r\n\r\n"
        wire.send(
            b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        )
        assert wire.read().body == b"abc"
        wire.get("/ok")
        assert wire.read().status == 200


def test_curl_asking_for_http2_by_upgrade_is_served_in_http1(shared: Served) -> None:
    out = subprocess.run(
        ["curl", "-s", "--http2", shared.url + "/echo", "-d", "hello", "-w", " %{http_version}"],
        capture_output=True,
        check=True,
    ).stdout
    assert out == b"hello 1.1"


def test_a_connection_without_a_key_may_be_idle_for_a_short_time_only() -> None:
    with (
        serving(Limits(stranger_idle_s=0.2)) as served,
        served.connect() as known,
        served.connect() as stranger,
    ):
        known.get("/ok")
        known.get("/stranger")  # such as a probe on a connection that had a key before
        assert [known.read().status for _ in range(2)] == [200, 200]
        stranger.get("/stranger")
        assert stranger.read().status == 200
        assert stranger.at_end()
        known.get("/ok")
        assert known.read().status == 200

"""HTTP/2 on the wire: prior knowledge, flow control, and peers that behave badly."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from tests.blackbox.transport_server import WAIT_S, Served, Wire, serving

from topics.http.limits import KIB, MIB, Limits
from topics.http.messages import Response

FORMAT = " %{http_version} %{content_type}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


class Peer:
    """A client we can make misbehave."""

    def __init__(self, wire: Wire, *, window: int = 65535) -> None:
        self.wire = wire
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
        self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.events: list[Event] = []

    def flush(self) -> None:
        self.wire.send(self.h2.data_to_send())

    def ask(
        self, stream_id: int, path: str, *extra: str, method: str = "GET", end: bool = True
    ) -> None:
        head = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "t")]
        for field in extra:
            name, _, value = field.partition(": ")
            head.append((name, value))
        self.h2.send_headers(stream_id, head, end_stream=end)

    def read_until(self, met: Callable[[], bool]) -> None:
        self.flush()
        while not met():
            data = self.wire.sock.recv(1 << 16)
            assert data, "the server hung up"
            self.events += self.h2.receive_data(data)
            self.flush()

    def read_more(self, pieces: int) -> None:
        """Read until more pieces of answers than these have come."""
        self.read_until(lambda: len(self.find(DataReceived)) > pieces)

    def find(self, kind: type[Event], stream_id: int | None = None) -> list[Event]:
        return [
            event
            for event in self.events
            if isinstance(event, kind)
            and (stream_id is None or getattr(event, "stream_id", None) == stream_id)
        ]

    def finish(self, stream_id: int) -> tuple[int, bytes]:
        """Read to the end of a stream; its status and body."""
        self.read_until(lambda: bool(self.find(StreamEnded, stream_id)))
        (response,) = self.find(ResponseReceived, stream_id)
        assert isinstance(response, ResponseReceived)
        body = b"".join(
            event.data
            for event in self.find(DataReceived, stream_id)
            if isinstance(event, DataReceived)
        )
        return int(dict(response.headers)[b":status"]), body

    def farewell(self) -> ErrorCodes | int | None:
        """Read to the end of the connection; the code of its GOAWAY."""
        with suppress(ConnectionResetError):  # what we still sent may meet a closed door
            while data := self.wire.sock.recv(1 << 16):
                self.events += self.h2.receive_data(data)
        (goaway,) = self.find(ConnectionTerminated)
        assert isinstance(goaway, ConnectionTerminated)
        return goaway.error_code


def test_curl_with_prior_knowledge_is_answered_in_http2(shared: Served) -> None:
    out = subprocess.run(
        [
            "curl",
            "-s",
            "--http2-prior-knowledge",
            shared.url + "/echo",
            "-d",
            "hello",
            "-w",
            FORMAT,
        ],
        capture_output=True,
        check=True,
    ).stdout
    assert out == b"hello 2 application/json"


def test_httpx_shares_one_connection_for_many_requests(served: Served) -> None:
    with httpx.Client(base_url=served.url, http1=False, http2=True, timeout=WAIT_S) as client:
        for number in range(20):
            answer = client.post("/echo", content=b"%d" % number)
            assert (answer.http_version, answer.content) == ("HTTP/2", b"%d" % number)
        assert served.do(lambda: served.listener.connections) == 1


def test_the_preface_may_come_byte_by_byte(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        for byte in peer.h2.data_to_send():
            wire.send(bytes((byte,)))
        assert peer.finish(1) == (200, b"{}")


def test_the_application_sees_the_same_request(served: Served) -> None:
    with served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/a%2Fb?x=1", "x-a: 1", method="PUT")
        assert peer.finish(1)[0] == 200
    request = served.app.requests[0]
    assert (request.method, request.version) == ("PUT", "2")
    assert request.segments == ("a/b",)
    assert request.query.every("x") == ("1",)
    assert request.headers[b"host"] == b"t"
    assert request.headers[b"x-a"] == b"1"


def test_answers_overtake_each_other(served: Served) -> None:
    with served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/hold")
        peer.ask(3, "/ok")
        assert peer.finish(3) == (200, b"{}")
        served.do(lambda: served.app.held[0](Response(200, b"late")))
        assert peer.finish(1) == (200, b"late")


def test_settings_advertise_streams_and_windows(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        peer.finish(1)
        settings = peer.h2.remote_settings
        assert settings.max_concurrent_streams == 1024
        assert settings.initial_window_size == MIB
        assert peer.h2.outbound_flow_control_window == 4 * MIB


def test_a_body_larger_than_all_windows_is_received(shared: Served) -> None:
    body = bytes(range(256)) * 40_000
    with httpx.Client(base_url=shared.url, http1=False, http2=True, timeout=WAIT_S) as client:
        assert client.post("/size", content=body).content == b"%d" % len(body)


def test_responses_respect_a_tiny_window(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire, window=1000)
        peer.ask(1, "/big?n=50000")
        peer.read_until(lambda: len(peer.find(DataReceived)) == 1)
        while not peer.find(StreamEnded):
            for event in peer.find(DataReceived):
                assert isinstance(event, DataReceived)
                size = event.flow_controlled_length
                if size:
                    peer.h2.acknowledge_received_data(size, 1)
                event.flow_controlled_length = 0
            seen = len(peer.events)
            peer.read_until(lambda: len(peer.events) > seen)  # noqa: B023 - called at once
        assert peer.finish(1) == (200, b"x" * 50_000)


def test_trailers_end_a_request(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/echo", method="POST", end=False)
        peer.h2.send_data(1, b"body")
        peer.h2.send_headers(1, [("x-sum", "1")], end_stream=True)
        assert peer.finish(1) == (200, b"body")


def test_expect_100_is_answered_before_the_body(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/echo", "expect: 100-continue", method="POST", end=False)
        peer.read_until(lambda: bool(peer.find(InformationalResponseReceived)))
        peer.h2.send_data(1, b"now", end_stream=True)
        assert peer.finish(1) == (200, b"now")


def test_the_gate_answers_before_the_body(served: Served) -> None:
    with served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/forbidden", method="POST", end=False)
        assert peer.finish(1)[0] == 403
        peer.h2.send_data(1, b"body nobody wants", end_stream=True)
        peer.ask(3, "/ok")
        assert peer.finish(3)[0] == 200
    assert served.app.run == ["/ok"]


def test_failures_of_the_application_are_500_and_the_connection_survives(shared: Served) -> None:
    with httpx.Client(base_url=shared.url, http1=False, http2=True, timeout=WAIT_S) as client:
        for path in ("/boom", "/broken-gate"):
            answer = client.get(path)
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "internal"
        assert client.get("/ok").status_code == 200


def test_head_and_no_content_have_no_body(shared: Served) -> None:
    with httpx.Client(base_url=shared.url, http1=False, http2=True, timeout=WAIT_S) as client:
        head = client.head("/big?n=5000", headers={"accept-encoding": "identity"})
        assert (head.headers["content-length"], head.content) == ("5000", b"")
        assert client.get("/none").status_code == 204


def test_a_client_that_sends_everything_first_still_reads_its_413() -> None:
    with (
        serving(Limits(max_body_bytes=100_000)) as served,
        httpx.Client(base_url=served.url, http1=False, http2=True, timeout=WAIT_S) as client,
    ):
        answer = client.post("/size", content=b"x" * 150_000)
        assert answer.status_code == 413
        pieces = (b"x" * 10_000 for _ in range(15))
        assert client.post("/size", content=pieces).status_code == 413
        assert client.post("/size", content=b"x" * 100_000).content == b"100000"


@pytest.mark.parametrize("length", [(), ("content-length: 101",)])
def test_the_size_of_a_body_in_one_piece_is_judged_too(length: tuple[str, ...]) -> None:
    with serving(Limits(max_body_bytes=100)) as served, served.connect() as wire:
        peer = Peer(wire)
        for stream_id, size in ((1, 101), (3, 100), (5, 101), (7, 100)):
            peer.ask(stream_id, "/size", *(length if size > 100 else ()), method="POST", end=False)
            peer.h2.send_data(stream_id, b"x" * size, end_stream=True)
            status, body = peer.finish(stream_id)
            assert status == (413 if size > 100 else 200)
            assert (body == b"100") == (size == 100)


def test_a_request_in_one_piece_waits_while_many_answers_are_unread() -> None:
    with serving(Limits(h2_max_queued_bytes=100_000)) as served, served.connect() as wire:
        peer = Peer(wire, window=200_000)
        peer.ask(1, "/big?n=300000")
        for stream_id in (3, 5):
            peer.ask(stream_id, "/size", method="POST", end=False)
            peer.h2.send_data(stream_id, b"x" * 1000, end_stream=True)
        peer.read_until(lambda: len(peer.find(DataReceived)) > 3)
        assert served.do(lambda: served.app.run == ["/big?n=300000"])
        peer.h2.increment_flow_control_window(300_000)
        peer.h2.increment_flow_control_window(300_000, 1)
        assert peer.finish(3) == (200, b"1000")
        assert peer.finish(5) == (200, b"1000")
        assert peer.finish(1) == (200, b"x" * 300_000)


def test_an_early_answer_to_a_request_in_one_piece_is_its_only_one(served: Served) -> None:
    with served.connect() as wire:
        peer = Peer(wire)
        for stream_id in (1, 3, 5):
            peer.ask(stream_id, "/forbidden", method="POST", end=False)
            peer.h2.send_data(stream_id, b"x" * 10, end_stream=True)
            assert peer.finish(stream_id)[0] == 403
        peer.ask(7, "/ok")
        assert peer.finish(7) == (200, b"{}")


def test_a_refused_upload_is_cut_off_in_the_end() -> None:
    with serving(Limits(max_body_bytes=1000)) as served, served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/size", method="POST", end=False)
        for _ in range(10):
            peer.h2.send_data(1, b"x" * 1000)
        peer.read_until(lambda: bool(peer.find(StreamReset)))
        assert peer.finish(1)[0] == 413


def test_a_reset_stream_ends_its_request_unanswered(served: Served) -> None:
    app = served.app
    with served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/hold")
        peer.ask(3, "/echo", method="POST", end=False)
        peer.flush()
        app.wait_until(lambda: len(app.held) == 1 and len(app.begun) == 2)
        peer.h2.reset_stream(1)
        peer.h2.reset_stream(3)
        peer.flush()
        app.wait_until(lambda: sorted(app.ended) == [("/echo", None), ("/hold", None)])
        app.wait_until(lambda: app.gone == ["/hold"])
        served.do(lambda: app.held[0](Response(200)))  # too late, and harmless
        peer.ask(5, "/ok")
        assert peer.finish(5)[0] == 200


def test_a_request_reset_in_the_same_breath_harms_nothing(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        for stream_id in (1, 3, 5):
            peer.ask(stream_id, "/big?n=100000")
            peer.h2.reset_stream(stream_id)
        peer.ask(7, "/ok")
        assert peer.finish(7)[0] == 200


def test_a_lost_connection_ends_all_its_requests(served: Served) -> None:
    app = served.app
    wire = served.connect()
    peer = Peer(wire)
    peer.ask(1, "/hold?1")
    peer.ask(3, "/hold?3")
    peer.flush()
    app.wait_until(lambda: len(app.held) == 2)
    wire.reset()
    app.wait_until(lambda: sorted(app.ended) == [("/hold?1", None), ("/hold?3", None)])


# Floods


@pytest.fixture(scope="module")
def touchy() -> Iterator[Served]:
    with serving(Limits(h2_nuisance_burst=100, h2_nuisance_per_s=1)) as served:
        yield served


def test_rapid_resets_are_sent_away(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        for stream_id in range(1, 401, 2):
            peer.ask(stream_id, "/ok")
            peer.h2.reset_stream(stream_id)
        peer.flush()
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_flood_of_settings_is_sent_away(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        peer.flush()
        wire.send(SettingsFrame(0, settings={3: 100}).serialize() * 300)
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_flood_of_pings_is_sent_away(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        for _ in range(300):
            peer.h2.ping(b"12345678")
        peer.flush()
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


def test_empty_data_frames_are_sent_away(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/echo", method="POST", end=False)
        for _ in range(200):
            peer.h2.send_data(1, b"")
        peer.flush()
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "frame",
    [
        WindowUpdateFrame(0, window_increment=1),
        WindowUpdateFrame(1, window_increment=1),
        PingFrame(0, opaque_data=b"12345678", flags=["ACK"]),
        SettingsFrame(0, flags=["ACK"]),
        RstStreamFrame(1, error_code=8),
    ],
    ids=["windows", "windows of an ended stream", "pongs", "acks of settings", "late resets"],
)
def test_frames_that_change_nothing_are_sent_away(touchy: Served, frame: Frame) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        assert peer.finish(1) == (200, b"{}")
        wire.send(frame.serialize() * 300)
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_reader_that_widens_its_windows_for_every_frame_is_no_nuisance(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire, window=MIB)
        for stream_id in range(1, 21, 2):
            peer.ask(stream_id, f"/big?n={512 * KIB}")
        read = 0
        while len(peer.find(StreamEnded)) < 10:
            peer.read_more(read)
            for event in peer.find(DataReceived)[read:]:
                assert isinstance(event, DataReceived)
                size = event.flow_controlled_length or 1
                peer.h2.increment_flow_control_window(size)
                # Also of a stream that has just ended: the server's word of it was on its way.
                wire.send(WindowUpdateFrame(event.stream_id, window_increment=size).serialize())
            read = len(peer.find(DataReceived))
        assert read > 200


def test_a_busy_client_is_no_nuisance(touchy: Served) -> None:
    with httpx.Client(base_url=touchy.url, http1=False, http2=True, timeout=WAIT_S) as client:
        for _ in range(300):
            assert client.get("/ok").status_code == 200


def test_requests_that_say_how_urgent_they_are_are_no_nuisance(touchy: Served) -> None:
    with touchy.connect() as wire:
        peer = Peer(wire)
        head = [(":method", "GET"), (":path", "/ok"), (":scheme", "http"), (":authority", "t")]
        for stream_id in range(1, 601, 2):
            peer.h2.send_headers(stream_id, head, end_stream=True, priority_weight=200)
            assert peer.finish(stream_id) == (200, b"{}")


def test_broken_frames_end_the_connection_with_a_reason(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.flush()
        wire.send(b"\0\0\1\0\0\0\0\0\0x")  # DATA on stream 0
        assert peer.farewell() == ErrorCodes.PROTOCOL_ERROR


def test_too_much_head_ends_the_connection(shared: Served) -> None:
    with shared.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok", *(f"x{number}: " + "x" * 1000 for number in range(100)))
        peer.flush()
        assert peer.farewell() == ErrorCodes.ENHANCE_YOUR_CALM


# Memory


def test_bodies_of_one_connection_are_bounded_together() -> None:
    limits = Limits(h2_max_bodies_bytes=100 * KIB)
    with serving(limits) as served, served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        peer.finish(1)  # with it came the real windows
        for stream_id in (3, 5, 7):
            peer.ask(stream_id, "/size", method="POST", end=False)
            for _ in range(4):
                peer.h2.send_data(stream_id, b"x" * 10_000)
        peer.read_until(lambda: bool(peer.find(StreamReset)))
        (reset,) = peer.find(StreamReset)
        assert isinstance(reset, StreamReset)
        assert (reset.stream_id, reset.error_code) == (7, ErrorCodes.REFUSED_STREAM)
        for _ in range(8):
            peer.h2.send_data(3, b"x" * 10_000)  # the oldest may go on alone
            peer.flush()
        peer.h2.end_stream(3)
        assert peer.finish(3) == (200, b"120000")


def test_bodies_of_one_connection_count_until_they_are_answered() -> None:
    limits = Limits(h2_max_bodies_bytes=300 * KIB)
    with serving(limits) as served, served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        peer.finish(1)  # with it came the real windows
        peer.ask(3, "/hold", method="POST", end=False)
        peer.h2.send_data(3, b"{}", end_stream=True)  # waits for something else, and is small
        for stream_id in (5, 7, 9):
            peer.ask(stream_id, "/hold", method="POST", end=False)
            for _ in range(13):
                peer.h2.send_data(stream_id, b"x" * 10_000)
            peer.h2.end_stream(stream_id)
            peer.flush()
        peer.read_until(lambda: bool(peer.find(StreamReset)))
        (reset,) = peer.find(StreamReset)
        assert isinstance(reset, StreamReset)
        assert (reset.stream_id, reset.error_code) == (9, ErrorCodes.REFUSED_STREAM)

        def answer_all() -> None:
            for reply in served.app.held:
                reply(Response(200, b"late"))

        served.do(answer_all)
        assert [peer.finish(stream_id) for stream_id in (3, 5, 7)] == [(200, b"late")] * 3
        peer.ask(11, "/size", method="POST", end=False)
        for _ in range(31):
            peer.h2.send_data(11, b"x" * 10_000)  # nothing is left of them
            peer.flush()
        peer.h2.end_stream(11)
        assert peer.finish(11) == (200, b"310000")


def test_while_many_answers_are_unread_further_requests_wait() -> None:
    with serving(Limits(h2_max_queued_bytes=100_000)) as served, served.connect() as wire:
        peer = Peer(wire, window=200_000)
        peer.ask(1, "/big?n=300000")
        peer.ask(3, "/ok")
        peer.read_until(lambda: len(peer.find(DataReceived)) > 3)
        assert served.do(lambda: served.app.run == ["/big?n=300000"])
        peer.h2.increment_flow_control_window(300_000)
        peer.h2.increment_flow_control_window(300_000, 1)
        assert peer.finish(3) == (200, b"{}")
        assert peer.finish(1) == (200, b"x" * 300_000)


def test_a_peer_that_does_not_read_is_not_read_either(served: Served) -> None:
    with served.connect() as wire, served.connect() as other:
        peer = Peer(wire, window=2**31 - 1)
        peer.h2.increment_flow_control_window(2**31 - 1 - 65535)
        for stream_id in range(1, 41, 2):
            peer.ask(stream_id, "/big?n=1000000")
        peer.flush()
        other.get("/ok")
        assert other.read().status == 200
        for stream_id in range(1, 41, 2):
            assert peer.finish(stream_id) == (200, b"x" * 1_000_000)


# Time


def test_a_silent_peer_is_pinged_and_then_dropped() -> None:
    with serving(Limits(h2_ping_s=0.1)) as served, served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/ok")
        peer.finish(1)
        answered = len(peer.find(PingReceived))  # if we took our time
        while data := wire.sock.recv(1 << 16):  # and never answer
            peer.events += peer.h2.receive_data(data)
        assert 1 <= len(peer.find(PingReceived)) <= answered + 1


def test_a_peer_that_answers_pings_stays() -> None:
    assert any(stays_by_answering_pings(seconds) for seconds in (0.1, 1.0, 10.0)), (
        "whoever is too busy to answer in time may be dropped, but nobody is for ten seconds"
    )


def stays_by_answering_pings(seconds: float) -> bool:
    """Whether a peer that is pinged that often is still there after some pings."""
    with serving(Limits(h2_ping_s=seconds)) as served, served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/hold")
        try:
            peer.read_until(lambda: len(peer.find(PingReceived)) >= 3)
            served.do(lambda: served.app.held[0](Response(200, b"late")))
            return peer.finish(1) == (200, b"late")
        except (AssertionError, ConnectionError):
            return False


def test_a_slow_body_is_408() -> None:
    with serving(Limits(body_timeout_s=0.1, min_body_rate=1000)) as served:
        with served.connect() as wire:
            peer = Peer(wire)
            peer.ask(1, "/echo", method="POST", end=False)
            peer.h2.send_data(1, b"x")
            status, body = peer.finish(1)
        assert (status, json.loads(body)["error"]["code"]) == (408, "invalid_request")


def test_an_answer_nobody_takes_is_cancelled() -> None:
    with serving(Limits(stall_timeout_s=0.1)) as served, served.connect() as wire:
        peer = Peer(wire, window=10)
        peer.ask(1, "/big?n=1000")
        peer.read_until(lambda: bool(peer.find(StreamReset)))
        served.app.wait_until(lambda: served.app.ended == [("/big?n=1000", 200)])


class Careless(Peer):
    """A client that checks nothing of what it sends."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.h2.config.validate_outbound_headers = False
        self.h2.config.normalize_outbound_headers = False


def test_a_request_without_its_pseudo_headers_ends_the_connection(served: Served) -> None:
    with served.connect() as wire:
        peer = Careless(wire)
        head = HeadersFrame(1, Encoder().encode([("accept", "*/*")]))
        head.flags |= {"END_HEADERS", "END_STREAM"}
        peer.flush()
        wire.send(head.serialize())
        assert peer.farewell() == ErrorCodes.PROTOCOL_ERROR


def test_pseudo_headers_in_trailers_end_the_connection(served: Served) -> None:
    with served.connect() as wire:
        peer = Careless(wire)
        peer.ask(1, "/echo", method="POST", end=False)
        peer.flush()
        names = ((":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "t"))
        trailers = HeadersFrame(1, peer.h2.encoder.encode(names))
        trailers.flags |= {"END_HEADERS", "END_STREAM"}
        wire.send(trailers.serialize())
        assert peer.farewell() == ErrorCodes.PROTOCOL_ERROR


def test_a_connection_without_a_key_may_be_idle_for_a_short_time_only() -> None:
    limits = Limits(stranger_idle_s=0.2)
    with serving(limits) as served, served.connect() as known, served.connect() as stranger:
        friend, peer = Peer(known), Peer(stranger)
        for number, path in ((1, "/ok"), (3, "/stranger")):
            friend.ask(number, path)
            assert friend.finish(number) == (200, b"{}")
        peer.ask(1, "/stranger")
        assert peer.finish(1) == (200, b"{}")
        assert peer.farewell() == ErrorCodes.NO_ERROR
        friend.ask(5, "/ok")
        assert friend.finish(5) == (200, b"{}")


def test_a_late_refusal_comes_late_and_the_connection_goes_on(served: Served) -> None:
    with served.connect() as wire:
        peer = Peer(wire)
        peer.ask(1, "/late", method="POST", end=False)
        peer.h2.send_data(1, b"x" * 1000, end_stream=True)
        peer.ask(3, "/late")
        peer.ask(5, "/ok")
        assert peer.finish(5) == (200, b"{}")
        assert [peer.finish(number)[0] for number in (1, 3)] == [401, 401]
    assert served.app.run == ["/ok"]

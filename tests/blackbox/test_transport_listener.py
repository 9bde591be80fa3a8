"""Listening: addresses, draining, closing, TLS, and many connections at once."""

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.blackbox.api_client import eventually
from tests.blackbox.transport_server import WAIT_S, Script, Served, serving

from topics.http.limits import Limits
from topics.http.listener import Listener, tls_context
from topics.http.messages import Response


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as own:
        yield own


def drain(served: Served, timeout_s: float = WAIT_S) -> Future[bool]:
    return asyncio.run_coroutine_threadsafe(served.listener.drain(timeout_s), served.loop)


def test_a_name_is_bound_on_one_port_for_all_its_addresses() -> None:
    async def bind() -> list[tuple[str, int]]:
        listener = Listener(Script())
        first = await listener.open("localhost", 0)
        assert listener.addresses[0] == first
        await listener.close()
        return listener.addresses

    addresses = asyncio.run(bind())
    assert len({port for _, port in addresses}) == 1
    assert addresses[0][1] > 0


def test_a_taken_port_is_an_error(served: Served) -> None:
    async def bind() -> None:
        await Listener(Script()).open(served.host, served.port)

    with pytest.raises(OSError, match="in use"):
        asyncio.run(bind())


def test_after_stop_accepting_the_connected_are_still_served(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/ok")
        assert wire.read().status == 200
        served.do(served.listener.stop_accepting)
        with pytest.raises(ConnectionRefusedError):
            served.connect()
        wire.get("/ok")
        assert wire.read().status == 200


def test_draining_closes_the_idle_and_finishes_the_busy(served: Served) -> None:
    app = served.app
    with served.connect() as silent, served.connect() as idle, served.connect() as busy:
        idle.get("/ok")
        assert idle.read().status == 200
        busy.get("/hold")
        app.wait_until(lambda: bool(app.held))
        drained = drain(served)
        assert silent.at_end()
        assert idle.at_end()
        served.do(lambda: app.held[0](Response(200, b"done")))
        answer = busy.read()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        assert busy.at_end()
        assert drained.result() is True


def test_draining_lets_http2_streams_finish(served: Served) -> None:
    app = served.app
    with httpx.Client(base_url=served.url, http1=False, http2=True, timeout=WAIT_S) as client:
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(client.get("/hold")))
        asking.start()
        app.wait_until(lambda: bool(app.held))
        drained = drain(served)
        served.do(lambda: app.held[0](Response(200, b"done")))
        asking.join()
        assert answers[0].content == b"done"
        assert drained.result() is True


def test_draining_gives_up_in_time(served: Served) -> None:
    with served.connect() as wire:
        wire.get("/hold")
        served.app.wait_until(lambda: bool(served.app.held))
        assert drain(served, 0.05).result() is False


def test_connections_that_come_and_go_leave_nothing_behind(served: Served) -> None:
    requests = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /ok HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nabc",
        b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /hold?%d HTTP/1.1\r\nHost: t\r\n\r\n",
    ]
    before = len(os.listdir("/proc/self/fd"))
    for reset in (True, False):
        for data in requests:
            wire = served.connect()
            wire.send(data % reset if b"%" in data else data)
            served.do(lambda: None)
            if reset:
                wire.reset()
            else:
                with wire:
                    pass
    app = served.app
    app.wait_until(
        lambda: "/hold?0" in app.run
    )  # the last of them; whoever resets may not be heard
    # A held request half-closes like any other, so only its answer shows that nobody is there.
    for reply in served.do(lambda: list(app.held)):
        served.do(lambda r=reply: r(Response(200)))  # type: ignore[misc]  # a bound default
    served.wait_for_no_connections()
    app.wait_until(lambda: len(app.ended) == len(app.begun))
    eventually(lambda: len(os.listdir("/proc/self/fd")), lambda found: found <= before)


def test_a_thousand_idle_connections_disturb_nobody(served: Served) -> None:
    idle = [socket.create_connection((served.host, served.port)) for _ in range(1000)]
    try:
        with served.connect() as wire:
            wire.get("/ok")
            assert wire.read().status == 200
            # Those that find the queue of the listener full come in later.
            eventually(
                lambda: served.do(lambda: served.listener.connections),
                lambda found: found == 1001,
            )
    finally:
        for sock in idle:
            sock.close()
    served.wait_for_no_connections()


# TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.fixture
def secure(pem: tuple[Path, Path]) -> Iterator[Served]:
    with serving(tls=tls_context(*pem)) as served:
        yield served


@pytest.mark.parametrize(("flag", "version"), [("--http1.1", b"1.1"), ("--http2", b"2")])
def test_tls_negotiates_the_version(secure: Served, flag: str, version: bytes) -> None:
    url = f"https://{secure.host}:{secure.port}/echo"
    out = subprocess.run(
        ["curl", "-sk", flag, url, "-d", "hi", "-w", " %{http_version}"],
        capture_output=True,
        check=True,
    ).stdout
    assert out == b"hi " + version


def test_a_refused_upload_under_tls_is_answered(secure: Served) -> None:
    url = f"https://{secure.host}:{secure.port}"
    with httpx.Client(base_url=url, verify=False, timeout=WAIT_S) as client:
        answer = client.post("/echo", content=b"x" * 500_000, headers={"content-encoding": "br"})
        assert answer.status_code == 415
        assert client.get("/ok").status_code == 200


def test_cleartext_on_a_tls_port_harms_nobody(secure: Served) -> None:
    with secure.connect() as wire:
        wire.send(b"GET /ok HTTP/1.1\r\nHost: t\r\n\r\n")
        with suppress(ConnectionResetError):
            assert wire.sock.recv(100)[:4] != b"HTTP"


def test_connections_beyond_the_bound_are_closed_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(Limits(max_connections=2)) as served, served.connect() as first:
        first.get("/a")
        assert first.read().status == 200
        with served.connect() as second:
            second.get("/b")
            assert second.read().status == 200
            for _ in range(3):
                with served.connect() as third, suppress(ConnectionResetError):
                    third.get("/c")
                    assert third.sock.recv(1) == b""
            first.get("/a")
            assert first.read().status == 200
        eventually(lambda: served.do(lambda: served.listener.connections), lambda left: left == 1)
        with served.connect() as again:
            again.get("/d")
            assert again.read().status == 200
        assert [record.levelname for record in caplog.records] == ["WARNING"]

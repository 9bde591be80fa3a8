"""A real listener on loopback with a scripted application, and a raw client to torment it."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

import uvloop

from topics.http.limits import Limits
from topics.http.listener import Listener
from topics.http.messages import Late, Reply, Request, Response, Stream, Upgrade

T = TypeVar("T")
WAIT_S = 60.0


class Script:
    """Answers by path; remembers what it saw. Touched only on the loop, read by tests."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.run: list[str] = []
        self.ended: list[tuple[str, int | None]] = []
        self.gone: list[str] = []
        self.requests: list[Request] = []
        self.held: list[Reply] = []
        self.streams: list[Stream] = []
        self.streams_closed = 0
        self.drains = 0
        self.sockets: list[Upgrade] = []
        self.sockets_closed: list[int] = []
        self.messages: list[bytes] = []
        self.changed = threading.Condition()

    def note(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, met: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(met, WAIT_S), "it never happened"

    # The application

    def begin(self, request: Request) -> Response | None:
        self.begun.append(request.target.decode())
        self.note()
        if request.path == b"/forbidden":
            return Response(403, b'{"error":"no"}')
        if request.path == b"/late":
            return Late(Response(401, b'{"error":"late"}'), 0.5)
        request.is_stranger = request.path == b"/stranger"
        if request.path == b"/broken-gate":
            raise RuntimeError("the gate is broken")
        return None

    def __call__(self, request: Request, reply: Reply) -> None:
        self.run.append(request.target.decode())
        self.requests.append(request)
        handler = getattr(self, "on_" + request.path.decode()[1:], None)
        if handler is None:
            reply(Response(200, b"{}"))
        else:
            handler(request, reply)
        self.note()

    def end(self, request: Request, status: int | None) -> None:
        self.ended.append((request.target.decode(), status))
        self.note()

    # Paths

    def on_echo(self, request: Request, reply: Reply) -> None:
        reply(Response(200, request.body))

    def on_size(self, request: Request, reply: Reply) -> None:
        reply(Response(200, b"%d" % len(request.body)))

    def on_big(self, request: Request, reply: Reply) -> None:
        reply(Response(200, b"x" * (request.query.u64("n") or 0)))

    def on_boom(self, request: Request, reply: Reply) -> None:
        raise RuntimeError("boom")

    def on_none(self, request: Request, reply: Reply) -> None:
        reply(Response(204, content_type=None))

    def on_hold(self, request: Request, reply: Reply) -> None:
        def gone() -> None:
            self.gone.append(request.target.decode())
            self.note()

        reply.on_gone = gone
        self.held.append(reply)

    def on_stream(self, request: Request, reply: Reply) -> None:
        def closed() -> None:
            self.streams_closed += 1
            self.note()

        def drained() -> None:
            self.drains += 1
            self.note()

        stream = reply.stream(content_type=b"text/event-stream")
        stream.on_close, stream.on_drain = closed, drained
        self.streams.append(stream)

    def on_ws(self, request: Request, reply: Reply) -> None:
        if request.wants_websocket:
            self.open_socket(reply)
        else:
            reply(Response(400, b'{"error":"no upgrade"}'))

    def open_socket(self, reply: Reply) -> None:
        upgrade = reply.upgrade()

        def text(message: bytes) -> None:
            self.messages.append(message)
            upgrade.send_text(message)
            self.note()

        def binary(message: bytes) -> None:
            upgrade.send_text(b"%d bytes" % len(message))

        def closed(code: int) -> None:
            self.sockets_closed.append(code)
            self.note()

        def drained() -> None:
            self.drains += 1
            self.note()

        upgrade.on_text, upgrade.on_binary = text, binary
        upgrade.on_close, upgrade.on_drain = closed, drained
        self.sockets.append(upgrade)


@dataclass
class Served:
    """A running listener."""

    app: Script
    listener: Listener
    host: str
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def do(self, call: Callable[[], T]) -> T:
        """Run something on the loop and wait for its result."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(WAIT_S)

    def wait_for_no_connections(self) -> None:
        """Return when the listener has none left."""
        left = asyncio.run_coroutine_threadsafe(self.listener.wait_for_none(), self.loop)
        left.result(WAIT_S)

    def connect(self) -> "Wire":
        return Wire(socket.create_connection((self.host, self.port), timeout=WAIT_S))


@contextmanager
def serving(limits: Limits | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """A listener on a loop of its own thread; afterwards nothing may be left connected."""
    app = Script()
    listener = Listener(app, limits)
    started: Future[Served] = Future()
    stop = asyncio.Event()

    async def main() -> None:
        host, port = await listener.open("127.0.0.1", 0, tls=tls)
        loop = asyncio.get_running_loop()
        started.set_result(Served(app, listener, host, port, loop))
        await stop.wait()
        await listener.close()
        assert listener.connections == 0

    failures: list[BaseException] = []

    def run() -> None:
        try:
            uvloop.run(main())
        except BaseException as error:
            failures.append(error)
            if not started.done():
                started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    served = started.result(WAIT_S)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(stop.set)
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert not failures


@dataclass
class Answer:
    """One response as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[int] = field(default_factory=list)


class Wire:
    """A socket and a reader of HTTP/1 responses."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, path: str, *headers: str, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: t", *headers, "", ""]
        self.send("\r\n".join(lines).encode())

    def post(self, path: str, body: bytes, *headers: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: t", f"Content-Length: {len(body)}", *headers]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def read_head(self) -> tuple[int, dict[str, str]]:
        status = int(self.file.readline().split(b" ")[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name] = value.strip()
        return status, headers

    def read(self, *, method: str = "GET") -> Answer:
        interim = []
        status, headers = self.read_head()
        while status == 100:
            interim.append(status)
            status, headers = self.read_head()
        body = b""
        if method != "HEAD" and "content-length" in headers:
            body = self.file.read(int(headers["content-length"]))
        return Answer(status, headers, body, interim)

    def read_chunk(self) -> bytes:
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        assert self.file.readline() == b"\r\n"
        return data

    def at_end(self) -> bool:
        return self.file.read(1) == b""

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.file.close()
        self.sock.close()

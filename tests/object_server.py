"""A real S3 protocol for the tests: moto's server in a process of its own, and a proxy with faults.

The proxy is an HTTP server that passes every request on to the real one, unless a rule of the test
says otherwise. It is where answers are slow, wrong, cut short or lost.
"""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY_ID = "AKIDVERYSECRET"
KEY = "shhh-this-is-secret"


@dataclass
class ObjectServer:
    """An S3 server; each test takes a bucket of its own."""

    port: int
    buckets: int = 0

    def make_bucket(self) -> str:
        self.buckets += 1
        name = f"bucket-{os.getpid()}-{self.buckets}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("PUT", f"/{name}")
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        connection.close()
        return name


def environment(port: int) -> dict[str, str]:
    """What a program needs to reach the server, or a proxy before it, on this port."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Start a server, stop it at the end."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            _await(port, process)
            yield ObjectServer(port)
        finally:
            process.kill()


def _await(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("the object server did not start")


@dataclass
class Fault:
    """What the proxy does to a request.

    `status` answers it without passing it on. Otherwise it is passed on after `delay_s`; then the
    answer is `lost` with the connection, or `cut_to` so many bytes of its body.
    """

    status: int = 0
    code: str = "InternalError"
    delay_s: float = 0.0
    lost: bool = False
    cut_to: int | None = None


Rule = Callable[[str, str, Mapping[str, str]], Fault | None]
"""Method, path and headers; None passes the request on."""


@dataclass
class Proxy:
    """Stands before the server; `rule` may be changed at any time."""

    upstream: int
    rule: Rule = field(default=lambda method, path, headers: None)
    port: int = 0
    seen: list[tuple[str, str]] = field(default_factory=list)

    def times(self, count: int, fault: Fault, *, method: str = "", part: str = "") -> None:
        """Do this to the next `count` requests with that method and that part of a path."""
        left = [fault] * count

        def rule(sent: str, path: str, headers: Mapping[str, str]) -> Fault | None:
            return left.pop() if left and sent == (method or sent) and part in path else None

        self.rule = rule


@contextmanager
def proxy_before(server: ObjectServer) -> Iterator[Proxy]:
    """A proxy before the server, stopped at the end."""
    proxy = Proxy(server.port)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:  # the client went away
                self.close_connection = True

        def pass_on(self) -> None:
            _pass_on(proxy, self)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on  # noqa: N815 - their names there

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        proxy.port = listener.server_address[1]
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join()


def _pass_on(proxy: Proxy, request: BaseHTTPRequestHandler) -> None:
    body = request.rfile.read(int(request.headers.get("content-length") or 0))
    proxy.seen.append((request.command, request.path))
    fault = proxy.rule(request.command, request.path, dict(request.headers)) or Fault()
    if fault.status:
        text = f"<Error><Code>{fault.code}</Code></Error>".encode()
        _answer(request, fault.status, {"content-type": "application/xml"}, text, len(text))
        return
    time.sleep(fault.delay_s)
    connection = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=30)
    connection.request(request.command, request.path, body, dict(request.headers))
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if fault.lost:
        request.close_connection = True
        return
    headers = {name.lower(): value for name, value in answer.getheaders()}
    size = int(headers.get("content-length", len(data)))
    if fault.cut_to is not None:
        data = data[: fault.cut_to]
        request.close_connection = True
    _answer(request, answer.status, headers, data, size)


def _answer(
    request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], data: bytes, size: int
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        if name not in ("content-length", "connection", "transfer-encoding", "date", "server"):
            request.send_header(name, value)
    request.send_header("content-length", str(size))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(data)

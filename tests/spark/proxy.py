"""A door in front of a server that can be held shut for chosen requests.

    with Proxy(server.address) as proxy:
        held = proxy.hold(lambda request: request.path.endswith("/commit"))
        ...                          # somebody commits through proxy.url
        held.wait()                  # the request is here, and the server has not heard of it
        held.let_go()                # or held.cut_off(): the caller never gets an answer

With `answered=True` a request is held on its way back: the server has done what it was asked, and
only the caller does not know. That is how tests stop Spark, or the world around it, at exactly the
moment they are about, without a switch in the product.

`target` may be set anew when the server comes back under another address.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

PATIENCE_S = 600.0
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


class Request(NamedTuple):
    method: str
    path: str
    body: bytes


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


Matches = Callable[[Request], bool]


class Held:
    """Requests that are held, and what becomes of them. It catches until it is let go or cut."""

    def __init__(self, matches: Matches, *, answered: bool) -> None:
        self.matches = matches
        self.answered = answered
        self.requests: list[Request] = []
        self._change = threading.Condition()
        self._verdict: Answer | bool | None = None  # True: go on; False: no answer

    def wait(self, count: int = 1) -> list[Request]:
        """Wait until so many requests are held; returns them."""
        with self._change:
            got = self._change.wait_for(lambda: len(self.requests) >= count, PATIENCE_S)
            assert got, f"{len(self.requests)} requests of {count} came"
            return list(self.requests)

    def let_go(self) -> None:
        """Go on as if nothing had happened, with those to come too."""
        self._decide(True)

    def cut_off(self) -> None:
        """Close the connections without an answer; those to come pass."""
        self._decide(False)

    def reply(self, status: int, body: bytes) -> None:
        """Answer in the server's place; those to come pass."""
        self._decide(Answer(status, [("content-type", "application/json")], body))

    def _decide(self, verdict: Answer | bool) -> None:
        with self._change:
            self._verdict = verdict
            self._change.notify_all()

    # On the threads of requests

    def catches(self, request: Request) -> bool:
        with self._change:
            return self._verdict is None and self.matches(request)

    def verdict_on(self, request: Request) -> Answer | bool:
        with self._change:
            self.requests.append(request)
            self._change.notify_all()
            self._change.wait_for(lambda: self._verdict is not None, PATIENCE_S)
            return self._verdict or False


class Proxy:
    """Listens on a free port of this machine; requests come back with the server's answers."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.seen: list[Request] = []
        self._rules: list[Held] = []
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def hold(self, matches: Matches, *, answered: bool = False) -> Held:
        """Hold requests from now on; the first rule that matches counts."""
        held = Held(matches, answered=answered)
        self._rules.append(held)
        return held

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for held in self._rules:
            held.cut_off()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)

    # On the threads of requests

    def carry(self, request: Request, headers: dict[str, str]) -> Answer | None:
        """Take a request to the server; None when the caller gets no answer."""
        self.seen.append(request)
        held = next((held for held in self._rules if held.catches(request)), None)
        if held is None:
            return self._forward(request, headers)
        answer = self._forward(request, headers) if held.answered else None
        verdict = held.verdict_on(request)
        if isinstance(verdict, Answer):
            return verdict
        if not verdict:
            return None
        return answer or self._forward(request, headers)

    def _forward(self, request: Request, headers: dict[str, str]) -> Answer | None:
        connection = http.client.HTTPConnection(self.target, timeout=PATIENCE_S)
        try:
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed in mid-sentence is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener
    timeout = PATIENCE_S

    def _carry(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if _travels(name)}
        request = Request(self.command, self.path, body)
        answer = self.server.proxy.carry(request, headers)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            if _travels(name):
                self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _carry  # noqa: N815 - named by the library

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: failures speak through tests."""


def _travels(name: str) -> bool:
    return name.lower() not in _HOP_BY_HOP

"""The blocking transport: a small pool of connections to one server.

    with Http("http://127.0.0.1:4000", token="secret") as http:
        http.request("GET", "/v0/topics/orders").body

Safe for threads. A forked child, and the far end of a pickle, find an empty pool and connect anew.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from topics.client._address import cannot_connect, tls_context
from topics.client._http import (
    MAX_ERROR_BYTES,
    TALKS_TO_ITSELF,
    Answer,
    BrokenResponse,
    ResponseParser,
    ServerAddress,
    StreamedResponse,
    refusal,
    retry_after,
)
from topics.client._retry import DEFAULT_RETRIES, IDEMPOTENT_METHODS, Attempts
from topics.client.signalled import SignalledEvent
from topics.errors import Closed, Unreachable

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES = 1 << 18
SEND_S = 30.0
LAST_WORDS_S = 1.0
"""How long a server is listened to that has stopped taking the request."""
MAX_CONNECTIONS = 16
_SEPARATE_BYTES = 1 << 16  # a body of this size is sent by itself rather than copied to the head

_forks = [0]
os.register_at_fork(after_in_child=lambda: _forks.append(_forks.pop() + 1))


class Http:
    """Requests to one server over reused connections.

    `timeout` bounds one try of a request from the first byte to the last, and the silence within
    a stream. `retries` bounds repeats after the first try; see `_retry` for what is repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: float = DEFAULT_RETRIES,
        ca_file: str | None = None,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._settings: dict[str, Any] = {
            "url": url,
            "token": token,
            "timeout": timeout,
            "retries": retries,
            "ca_file": ca_file,
            "connections": connections,
        }
        self.target = ServerAddress(url, token)
        self.timeout = timeout
        self.retries = retries
        self._closed = SignalledEvent()
        self._tls = tls_context(ca_file) if self.target.is_tls else None
        self._pool = _Pool(connections)

    @property
    def url(self) -> str:
        """The server's address, without a slash at the end."""
        return self.target.url

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        timeout: float | None = None,
        within: float = math.inf,
    ) -> Answer:
        """One call; an answer of 400 or more is raised as the error it stands for.

        `idempotent` says that carrying the call out twice is the same as once; by default that
        holds for GET, PUT and DELETE. No try begins later than `within` seconds after the first.
        `path` has its names percent-encoded.
        """
        head = self.target.request(method, path, body=body, headers=headers, query=query)
        attempts = self._attempts(method, idempotent, within)
        patience = self.timeout if timeout is None else timeout
        while True:
            asked: float | None = None
            try:
                answer = self._once(method, head, body, patience)
                if answer.status < 400:
                    return answer
                error, asked = refusal(answer), retry_after(answer.headers)
            except Unreachable as lost:
                error = lost
            self.sleep(attempts.wait_after(error, now=time.monotonic(), retry_after=asked))

    @contextlib.contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        timeout: float | None = None,
    ) -> Iterator[BodyStream]:
        """One call whose body is read as it arrives; errors before it are raised on entry.

        A stream has a connection of its own, outside the pool. `timeout` is the longest silence:
        after it, and when the connection breaks, iteration raises `Unreachable`.
        """
        head = self.target.request(method, path, body=body, headers=headers, query=query)
        attempts = self._attempts(method, idempotent)
        patience = self.timeout if timeout is None else timeout
        while True:
            asked: float | None = None
            try:
                stream = self._open_stream(method, head, body, patience)
                if stream.status < 400:
                    break
                error, asked = refusal(stream.rest()), retry_after(stream.headers)
            except Unreachable as lost:
                error = lost
            self.sleep(attempts.wait_after(error, now=time.monotonic(), retry_after=asked))
        try:
            yield stream
        finally:
            stream.close()

    def close(self) -> None:
        """Close idle connections and end pauses between retries. A second call does nothing."""
        self._closed.set()
        self._current_pool().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self._settings

    def __setstate__(self, settings: dict[str, Any]) -> None:
        self.__init__(**settings)  # type: ignore[misc]  # a copy starts over, without connections

    # Inside

    def _attempts(self, method: str, idempotent: bool | None, within: float = math.inf) -> Attempts:
        harmless = method in IDEMPOTENT_METHODS if idempotent is None else idempotent
        return Attempts(self.retries, idempotent=harmless, until=time.monotonic() + within)

    def sleep(self, seconds: float) -> None:
        """Pause; if the client is closed meanwhile, raise `Closed` at once."""
        if self._closed.wait(seconds):
            raise Closed("the client is closed; open it again")

    def forget_idle(self) -> None:
        """Close idle connections, so that the next calls make new ones."""
        self._current_pool().forget()

    def check_open(self) -> None:
        """Raise `Closed` if the client was closed."""
        if self._closed.is_set():
            raise Closed("the client is closed; open it again")

    def _once(self, method: str, head: bytes, body: bytes | None, patience: float) -> Answer:
        self.check_open()
        deadline = time.monotonic() + patience
        pool = self._current_pool()
        if not pool.slots.acquire(timeout=patience):
            raise Unreachable(self.url, reason="every connection of the pool is busy")
        try:
            connection = pool.take() or self.connect(patience)
            try:
                answer = connection.exchange(method, head, body, deadline)
            except BaseException:
                connection.close()
                raise
            pool.give_back(connection)
            return answer
        finally:
            pool.slots.release()

    def connect(self, patience: float) -> ClientConnection:
        """A connection outside the pool, for streams and WebSockets."""
        return ClientConnection(self.target, self._tls, patience)

    def _open_stream(
        self, method: str, head: bytes, body: bytes | None, patience: float
    ) -> BodyStream:
        self.check_open()
        connection = self.connect(patience)
        try:
            response = connection.begin(method, head, body, time.monotonic() + patience)
            return BodyStream(connection, response, patience)
        except BaseException:
            connection.close()
            raise

    def _current_pool(self) -> _Pool:
        if self._pool.forks != _forks[0]:
            self._pool = _Pool(self._settings["connections"])  # the parent goes on with the other
        return self._pool


class _Pool:
    """Idle connections, newest first; `slots` bounds those in use and idle together."""

    def __init__(self, connections: int) -> None:
        self.forks = _forks[0]
        self.slots = threading.BoundedSemaphore(connections)
        self._idle: list[ClientConnection] = []
        self._lock = threading.Lock()  # guards `_idle` and `_is_closed`
        self._is_closed = False

    def take(self) -> ClientConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()

    def give_back(self, connection: ClientConnection) -> None:
        with self._lock:
            if connection.is_idle and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def forget(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.forget()


class ClientConnection:
    """One socket to the server, with one request on it at a time."""

    def __init__(self, target: ServerAddress, tls: ssl.SSLContext | None, patience: float) -> None:
        self.url = target.url
        try:
            sock = socket.create_connection((target.host, target.port), timeout=patience)
        except OSError as error:
            raise cannot_connect(self.url, error, is_tls=False) from error
        try:
            if sock.getsockname() == sock.getpeername():
                raise ConnectionRefusedError(TALKS_TO_ITSELF)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = tls.wrap_socket(sock, server_hostname=target.host) if tls else sock
        except OSError as error:
            sock.close()
            raise cannot_connect(self.url, error, is_tls=tls is not None) from error
        self.socket = sock
        self.is_idle = False
        self._has_sent = True
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def is_usable(self) -> bool:
        """Whether the server has neither closed it nor sent bytes that no request asked for."""
        return not self._poll.poll(0)

    def exchange(self, method: str, head: bytes, body: bytes | None, deadline: float) -> Answer:
        """Send a request and read the whole answer before the deadline."""
        response = self.begin(method, head, body, deadline)
        while not response.done:
            self._receive_before(response, deadline)
        self.is_idle = response.keep_alive
        return Answer(response.status, response.headers, response.take())

    def begin(
        self, method: str, head: bytes, body: bytes | None, deadline: float
    ) -> ResponseParser:
        """Send a request and read on until the head of the answer is there."""
        self.is_idle = False
        # A request that was cut short cannot have been carried out; the answer may say why.
        self._has_sent = self._send(head, body, deadline - time.monotonic())
        if not self._has_sent:
            deadline = max(deadline, time.monotonic() + LAST_WORDS_S)
        response = ResponseParser(method=method)
        while not response.has_head:
            self._receive_before(response, deadline)
        response.keep_alive &= self._has_sent
        return response

    def _send(self, head: bytes, body: bytes | None, patience: float) -> bool:
        """Whether all of it went out; a server may refuse a body before it has read it."""
        try:
            self.socket.settimeout(max(patience, 0.001))
            if body is None:
                self.socket.sendall(head)
            elif len(body) < _SEPARATE_BYTES:
                self.socket.sendall(head + body)
            else:
                self.socket.sendall(head)
                self.socket.sendall(body)
        except OSError:
            return False
        return True

    def send(self, data: bytes) -> None:
        """Send bytes of another protocol."""
        try:
            self.socket.settimeout(SEND_S)
            self.socket.sendall(data)
        except OSError as error:
            raise Unreachable(self.url, reason=_said(error), sent=True) from error

    def receive_some(self, patience: float) -> bytes | None:
        """What comes within `patience` seconds: None for nothing, empty at the end."""
        try:
            self.socket.settimeout(max(patience, 0.001))
            return self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            return None
        except OSError as error:
            raise Unreachable(self.url, reason=_said(error), sent=self._has_sent) from error

    def receive(self, response: ResponseParser, patience: float) -> bool:
        """Read once into a response that is not done; False if nothing came in time."""
        data = self.receive_some(patience)
        if data is None:
            return False
        try:
            if data:
                response.feed(data)
            elif not response.end():
                raise Unreachable(self.url, reason="it closed the connection", sent=self._has_sent)
        except BrokenResponse as error:
            reason = f"it does not speak HTTP ({error})"
            raise Unreachable(self.url, reason=reason, sent=self._has_sent) from error
        return True

    def _receive_before(self, response: ResponseParser, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not self.receive(response, left):
            raise Unreachable(self.url, reason="it took too long", sent=self._has_sent)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


class BodyStream(StreamedResponse[ClientConnection]):
    """A response whose body is read part by part. Iterate over it."""

    def __iter__(self) -> Iterator[bytes]:
        response = self._response
        while True:
            part = response.take()
            if part:
                yield part
            elif response.done:
                return
            elif not self._connection.receive(response, self._patience):
                raise Unreachable(self._connection.url, reason="it took too long", sent=True)

    def next_part(self, patience: float) -> bytes | None:
        """What comes within `patience` seconds: None for nothing, empty at the end."""
        response = self._response
        end = time.monotonic() + patience
        while not (part := response.take()) and not response.done:
            if not self._connection.receive(response, end - time.monotonic()):
                return None
        return part

    def rest(self) -> Answer:
        """What is left of the body, as one answer; for refusals, which are short."""
        parts, size = [], 0
        for part in self:
            parts.append(part)
            size += len(part)
            if size > MAX_ERROR_BYTES:
                break
        self.close()
        return Answer(self.status, self.headers, b"".join(parts))


def _said(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return error.strerror or str(error) or type(error).__name__

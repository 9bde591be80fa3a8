"""The asyncio transport: a small pool of connections to one server, on plain protocols.

The same core and the same rules as `sync_http`; only waiting differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Self, cast

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
from topics.errors import Closed, Unreachable

if TYPE_CHECKING:
    import ssl

MAX_CONNECTIONS = 16
_PAUSE_BYTES = 1 << 20  # unread bytes at which the other side is made to wait


class AsyncHttp:
    """Requests to one server over reused connections, for one event loop."""

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
        self.target = ServerAddress(url, token)
        self.timeout = timeout
        self.retries = retries
        self._tls = tls_context(ca_file) if self.target.is_tls else None
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[AsyncClientConnection] = []
        self._closed = asyncio.Event()

    @property
    def url(self) -> str:
        """The server's address, without a slash at the end."""
        return self.target.url

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - one try's, not the whole call's
        within: float = math.inf,
    ) -> Answer:
        """One call; see `Http.request`."""
        head = self.target.request(method, path, body=body, headers=headers, query=query)
        attempts = self._attempts(method, idempotent, within)
        patience = self.timeout if timeout is None else timeout
        while True:
            asked: float | None = None
            try:
                answer = await self._once(method, head, body, patience)
                if answer.status < 400:
                    return answer
                error, asked = refusal(answer), retry_after(answer.headers)
            except Unreachable as lost:
                error = lost
            await self.sleep(attempts.wait_after(error, now=_now(), retry_after=asked))

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the longest silence
    ) -> AsyncIterator[AsyncBodyStream]:
        """One call whose body is read as it arrives; see `Http.stream`."""
        head = self.target.request(method, path, body=body, headers=headers, query=query)
        attempts = self._attempts(method, idempotent, math.inf)
        patience = self.timeout if timeout is None else timeout
        while True:
            asked: float | None = None
            try:
                stream = await self._open_stream(method, head, body, patience)
                if stream.status < 400:
                    break
                error, asked = refusal(await stream.rest()), retry_after(stream.headers)
            except Unreachable as lost:
                error = lost
            await self.sleep(attempts.wait_after(error, now=_now(), retry_after=asked))
        try:
            yield stream
        finally:
            stream.close()

    async def sleep(self, seconds: float) -> None:
        """Pause; if the client is closed meanwhile, raise `Closed` at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)
        self.check_open()

    def forget_idle(self) -> None:
        """Close idle connections, so that the next calls make new ones."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def check_open(self) -> None:
        """Raise `Closed` if the client was closed."""
        if self._closed.is_set():
            raise Closed("the client is closed; open it again")

    async def close(self) -> None:
        """Close idle connections and end pauses between retries. A second call does nothing."""
        self._closed.set()
        self.forget_idle()
        await asyncio.sleep(0)  # lets the transports go before the loop may be closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # Inside

    def _attempts(self, method: str, idempotent: bool | None, within: float) -> Attempts:
        harmless = method in IDEMPOTENT_METHODS if idempotent is None else idempotent
        return Attempts(self.retries, idempotent=harmless, until=_now() + within)

    async def _once(self, method: str, head: bytes, body: bytes | None, patience: float) -> Answer:
        self.check_open()
        deadline = _now() + patience
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise Unreachable(self.url, reason="every connection of the pool is busy") from None
        try:
            connection = self._take() or await self.connect(patience)
            try:
                answer = await connection.exchange(method, head, body, deadline)
            except BaseException:
                connection.close()
                raise
            if connection.is_idle and not self._closed.is_set():
                self._idle.append(connection)
            else:
                connection.close()
            return answer
        finally:
            self._slots.release()

    def _take(self) -> AsyncClientConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def connect(self, patience: float) -> AsyncClientConnection:
        """A connection outside the pool, for streams and WebSockets."""
        return await connect(self.target, self._tls, patience)

    async def _open_stream(
        self, method: str, head: bytes, body: bytes | None, patience: float
    ) -> AsyncBodyStream:
        self.check_open()
        connection = await self.connect(patience)
        try:
            response = await connection.begin(method, head, body, _now() + patience)
        except BaseException:
            connection.close()
            raise
        return AsyncBodyStream(connection, response, patience)


async def connect(
    target: ServerAddress, tls: ssl.SSLContext | None, patience: float
) -> AsyncClientConnection:
    """A connection, within `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            transport, connection = await asyncio.get_running_loop().create_connection(
                lambda: AsyncClientConnection(target.url),
                target.host,
                target.port,
                ssl=tls,
                server_hostname=target.host if tls else None,
            )
    except OSError as error:
        raise cannot_connect(target.url, error, is_tls=tls is not None) from error
    if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
        connection.close()
        raise Unreachable(target.url, reason=TALKS_TO_ITSELF)
    return connection


class AsyncClientConnection(asyncio.Protocol):
    """One socket to the server, with one request on it and one task waiting at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_idle = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._has_ended = False
        self._problem: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast and not a check: uvloop's transports are of their own kind.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _PAUSE_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._has_ended = True
        self._wake()

    def connection_lost(self, problem: Exception | None) -> None:
        self._has_ended = True
        self._problem = problem
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the client calls

    @property
    def is_usable(self) -> bool:
        """Whether the server has neither closed it nor sent bytes that no request asked for."""
        return not self._has_ended and not self._parts

    def send(self, data: bytes) -> None:
        if self._has_ended or self._transport is None:
            raise Unreachable(self.url, reason="it closed the connection")
        self._transport.write(data)

    async def receive_some(self, patience: float) -> bytes | None:
        """What comes within `patience` seconds: None for nothing, empty at the end."""
        if not self._parts and not self._has_ended:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(patience, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        if self._parts:
            parts, self._parts = self._parts, []
            if self._size > _PAUSE_BYTES and self._transport is not None:
                self._transport.resume_reading()
            self._size = 0
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if not self._has_ended:
            return None
        if self._problem is not None:
            raise Unreachable(self.url, reason=str(self._problem), sent=True) from self._problem
        return b""

    async def receive(self, response: ResponseParser, deadline: float) -> bool:
        """Read once into a response that is not done; False if nothing came in time."""
        data = await self.receive_some(deadline - self._loop.time())
        if data is None:
            return False
        try:
            if data:
                response.feed(data)
            elif not response.end():
                raise Unreachable(self.url, reason="it closed the connection", sent=True)
        except BrokenResponse as error:
            reason = f"it does not speak HTTP ({error})"
            raise Unreachable(self.url, reason=reason, sent=True) from error
        return True

    async def begin(
        self, method: str, head: bytes, body: bytes | None, deadline: float
    ) -> ResponseParser:
        """Send a request and read on until the head of the answer is there."""
        self.is_idle = False
        self.send(head if body is None else head + body)
        response = ResponseParser(method=method)
        while not response.has_head:
            await self._receive_before(response, deadline)
        return response

    async def exchange(
        self, method: str, head: bytes, body: bytes | None, deadline: float
    ) -> Answer:
        """Send a request and read the whole answer before the deadline."""
        response = await self.begin(method, head, body, deadline)
        while not response.done:
            await self._receive_before(response, deadline)
        # An answer may come before the whole request was sent; what is left would garble the next.
        assert self._transport is not None
        self.is_idle = response.keep_alive and not self._transport.get_write_buffer_size()
        return Answer(response.status, response.headers, response.take())

    async def _receive_before(self, response: ResponseParser, deadline: float) -> None:
        if not await self.receive(response, deadline):
            raise Unreachable(self.url, reason="it took too long", sent=True)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class AsyncBodyStream(StreamedResponse[AsyncClientConnection]):
    """A response whose body is read part by part. Iterate over it."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            part = await self.next_part(self._patience)
            if part is None:
                raise Unreachable(self._connection.url, reason="it took too long", sent=True)
            if not part:
                return
            yield part

    async def next_part(self, patience: float) -> bytes | None:
        """What comes within `patience` seconds: None for nothing, empty at the end."""
        response = self._response
        deadline = _now() + patience
        while not (part := response.take()) and not response.done:
            if not await self._connection.receive(response, deadline):
                return None
        return part

    async def rest(self) -> Answer:
        """What is left of the body, as one answer; for refusals, which are short."""
        parts, size = [], 0
        async for part in self:
            parts.append(part)
            size += len(part)
            if size > MAX_ERROR_BYTES:
                break
        self.close()
        return Answer(self.status, self.headers, b"".join(parts))


def _now() -> float:
    return asyncio.get_running_loop().time()

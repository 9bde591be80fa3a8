"""How long an HTTP/2 peer has kept us waiting: for a word, for a body, for room to send."""

from typing import Protocol

from topics.http import refusals
from topics.http.h2.exchange import AnswerStreams, H2Exchange


class Pinged(AnswerStreams, Protocol):
    """A connection, as its timeouts see it: it asks for a word, gives up or closes."""

    @property
    def blocked(self) -> bool: ...
    def ping(self) -> None: ...
    def cancel(self, exchange: H2Exchange) -> None: ...
    def drain(self) -> None: ...


class H2Timeouts:
    """The waits of one connection. The sweep looks at them, so all are exact to one sweep."""

    __slots__ = ("_connection", "_idle_since", "_pinged", "_since", "asked", "heard")

    def __init__(self, connection: Pinged) -> None:
        self._connection = connection
        self._pinged = False
        self._since: float | None = None  # the present wait of the connection itself
        self._idle_since = 0.0
        self.asked = True  # a request came since the last look at a stranger
        self.heard = True  # something came since the last look

    def check_silence(self, now: float) -> None:
        """Ping a peer that says nothing; one that is silent for as long again is gone."""
        connection = self._connection
        if self.heard or connection.blocked or self._since is None:
            self.heard = self._pinged = False
            self._since = now
        elif now - self._since > connection.hub.limits.h2_ping_s:
            if self._pinged:
                connection.abort()
                return
            self._pinged = True
            self._since = now
            connection.ping()

    def check_stranger(self, now: float, *, is_busy: bool) -> None:
        """Close on a peer without a key that asks for nothing, whether it answers pings or not."""
        if self.asked or is_busy:
            self.asked = False
            self._idle_since = now
        elif now - self._idle_since > self._connection.hub.limits.stranger_idle_s:
            self._connection.drain()

    def start_linger(self) -> None:
        """Wait only for the peer to close from now on."""
        self._since = None

    def check_linger(self, now: float) -> None:
        """Close the connection if the peer has not closed it in time."""
        if self._since is None:
            self._since = now
        elif now - self._since > self._connection.hub.limits.linger_s:
            self._connection.abort()

    def check_exchange(self, exchange: H2Exchange, now: float) -> None:
        """Refuse a body that comes too slowly, and give up on an answer that is not taken."""
        limits = self._connection.hub.limits
        sending = exchange.answered
        progress = exchange.pending_bytes if sending else exchange.received
        if exchange.since is None or (sending and (progress != exchange.mark or not progress)):
            exchange.since, exchange.mark = now, progress
            exchange.is_overdue(now)
            return
        waited = now - exchange.since
        if sending:
            if waited > limits.stall_timeout_s and exchange.opened is None:
                self._connection.cancel(exchange)
        elif not exchange.read and exchange.is_overdue(now):
            exchange(refusals.too_slow("request body"))
        elif not exchange.read and waited > limits.body_timeout_s:
            if progress - exchange.mark < limits.min_body_rate * waited:
                exchange(refusals.too_slow("request body"))
            exchange.since, exchange.mark = now, progress

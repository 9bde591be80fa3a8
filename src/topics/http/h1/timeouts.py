"""How long an HTTP/1 peer has kept us waiting: for a word, for a body, for room to send."""

from topics.http import refusals
from topics.http.h1.reader import HEAD, IDLE, H1Reader, RequestTaker


class H1Timeouts:
    """The waits of one connection. The sweep looks at them, so all are exact to one sweep.

    When the present wait began is the reader's `since`, which it forgets with every step ahead.
    """

    __slots__ = ("_connection", "_mark", "_reader")

    def __init__(self, connection: RequestTaker, reader: H1Reader) -> None:
        self._connection = connection
        self._reader = reader
        self._mark = 0  # progress when the sweep first saw the present wait

    def check(self, now: float, *, lingering: bool) -> None:
        """Give up on a peer that says nothing, or too little."""
        reader, limits = self._reader, self._connection.hub.limits
        if reader.since is None:
            reader.since = now
            self._mark = self._received
            if reader.reading is not None:
                reader.reading.is_overdue(now)
            return
        waited = now - reader.since
        if lingering:
            if waited > limits.linger_s:
                self._connection.abort()
        elif reader.phase == IDLE:
            is_stranger = self._connection.is_stranger
            if waited > (limits.stranger_idle_s if is_stranger else limits.idle_timeout_s):
                self._connection.close()
        elif reader.phase == HEAD:
            if waited > limits.head_timeout_s:
                self._connection.refuse(refusals.too_slow("request head"))
        elif reader.reading is not None and reader.reading.is_overdue(now):
            self._connection.refuse(refusals.too_slow("request body"))
        elif waited > limits.body_timeout_s:
            self._check_pace(now, waited)

    def _check_pace(self, now: float, waited: float) -> None:
        received = self._received
        if received - self._mark < self._connection.hub.limits.min_body_rate * waited:
            self._connection.refuse(refusals.too_slow("request body"))
        else:
            self._reader.since, self._mark = now, received

    @property
    def _received(self) -> int:
        reading = self._reader.reading
        return 0 if reading is None else reading.received

    def check_stall(self, now: float, *, queued: int, is_streaming: bool) -> None:
        """Give up on a peer that takes none of what is queued for it; a stream is not ours."""
        reader = self._reader
        if is_streaming or reader.since is None or queued != self._mark:
            reader.since, self._mark = now, queued
        elif now - reader.since > self._connection.hub.limits.stall_timeout_s:
            self._connection.abort()

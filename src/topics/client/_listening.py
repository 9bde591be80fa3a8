"""How long a live read listens, when it takes a connection for dead, and what it does then.

Time comes in as an argument (seconds of a clock that never steps), so nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from topics.client._following import StreamEnded
from topics.client._retry import is_passing, pause
from topics.errors import NotReady, TopicsError, Unreachable
from topics.events import Resumed

LOOK_S = 0.5
"""How often a waiting read looks whether its client was closed."""
SILENT_BEATS = 3
"""Heartbeats that may be missing before the connection counts as dead."""


class Listening:
    """One live read. `wait` is how long it goes on without news; None for ever."""

    def __init__(self, *, now: float, wait: float | None, heartbeat: float, url: str) -> None:
        self._wait = wait
        self._heartbeat = heartbeat
        self._url = url
        self._news_at = now
        self._heard_at = now
        self._beat_at = now
        self._lost_at: float | None = None
        self._reason = ""
        self._tries = 0
        self._fruitless = 0  # streams in a row that ended before they said anything

    # While connected

    def opened(self, now: float, positions: Mapping[str, int]) -> Resumed | None:
        """A stream is open; the event that says so, if there was one before."""
        self._news_at = self._heard_at = self._beat_at = now
        self._fruitless += 1
        if self._lost_at is None:
            return None
        event = Resumed(self._reason, positions, round(now - self._lost_at, 3), self._tries)
        self._lost_at, self._tries = None, 0
        return event

    def heard(self, now: float, *, news: bool) -> None:
        """Bytes came; `news` when they were more than a heartbeat."""
        self._heard_at = self._beat_at = now
        if news:
            self._news_at = now
            self._fruitless = 0

    def patience(self, now: float, *, settled: bool) -> float:
        """How long to listen before looking around."""
        until = min(now + LOOK_S, self._heard_at + SILENT_BEATS * self._heartbeat)
        if settled and self._wait is not None:
            until = min(until, self._news_at + self._wait)
        return max(until - now, 0.0)

    def has_waited(self, now: float, *, settled: bool) -> bool:
        """Whether the reader has everything and waited long enough for more."""
        return settled and self._wait is not None and now >= self._news_at + self._wait

    def must_ping(self, now: float) -> bool:
        """Whether it is time to ask for a sign of life, where the other side gives none unasked."""
        if now - self._beat_at < self._heartbeat:
            return False
        self._beat_at = now
        return True

    def check_alive(self, now: float) -> None:
        """Raises when the other side has been silent for so long that it must be gone."""
        if now >= self._heard_at + SILENT_BEATS * self._heartbeat:
            raise Unreachable(self._url, reason="the stream fell silent", sent=True)

    # While not

    def lost(self, error: TopicsError | StreamEnded, now: float) -> float:
        """How long to wait before connecting again; raises what no reconnecting can cure.

        A read that never had a stream fails like any other call, and so does one that would have
        ended by now: it cannot know whether there was news.
        """
        known = error if isinstance(error, TopicsError) else NotReady(replay_progress=0.0)
        if self._lost_at is None:
            # The cause alone: by the time that it is told, the server answers again.
            cause = error.cause if isinstance(error, Unreachable) else str(error)
            self._lost_at, self._reason = now, cause or type(error).__name__
        else:
            self._tries += 1
        if not is_passing(known):
            raise error
        if self._wait is not None and now - self._lost_at > max(self._wait, self._heartbeat):
            raise error
        failures = self._tries + self._fruitless
        return pause(failures, known) if failures else 0.0

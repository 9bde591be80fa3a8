"""Watch sessions: what a client follows and how far it has come, kept between connections.

A session belongs to the key that made it. It lives while a stream is open and for a while after
the last one ended; sessions that no client resumed are swept when others are made or opened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from topics.delivery.pages import Options
from topics.delivery.subscriptions import Place
from topics.engine.clock import Clock
from topics.errors import Throttled
from topics.wire import cursors
from topics.wire.tokens import WID_ENTROPY_BYTES, watch_id

IDLE_TTL_MS = 300_000
MAX_HEARTBEAT_MS = 60_000


class OpenStream(Protocol):
    def supersede(self) -> None:
        """End the stream: another one takes its place."""

    def look_again(self) -> None:
        """Places were moved back: there may be records to deliver without a new publish."""


class Session:
    """One watch. `places` are shared by its streams, which split the records between them."""

    def __init__(
        self,
        registry: Sessions,
        wid: str,
        owner: int | None,
        *,
        places: Mapping[str, Place],
        options: Options,
        heartbeat_ms: int,
    ) -> None:
        self.wid = wid
        self.owner = owner
        self.places = dict(sorted(places.items()))
        self.options = options
        self.heartbeat_ms = heartbeat_ms
        self.streams: dict[OpenStream, None] = {}
        self._registry = registry

    def stream_id(self, name: str | None = None, cursor: int = 0) -> str:
        """The place of every topic as an event id; of `name` the place to come."""
        if name is not None and len(self.places) == 1:
            return cursors.stream_id({name: cursor})
        positions = {topic: place.cursor for topic, place in self.places.items()}
        if name is not None:
            positions[name] = cursor
        return cursors.stream_id(positions)

    def others(self, name: str) -> tuple[tuple[str, int], ...]:
        """Where the other topics stand: two sessions that agree here share their frames."""
        if len(self.places) == 1:
            return ()
        return tuple((topic, place.cursor) for topic, place in self.places.items() if topic != name)

    def resume(self, positions: Mapping[str, int]) -> None:
        """A client resumes and reports its cursors: older streams end, places only move back."""
        for stream in tuple(self.streams):
            stream.supersede()
        for name, cursor in positions.items():
            place = self.places.get(name)
            if place is not None:
                place.lower(cursor)

    def join(self, stream: OpenStream) -> None:
        self.streams[stream] = None
        self._registry.note_busy(self)

    def leave(self, stream: OpenStream, *, left_records: bool = False) -> None:
        """A stream has ended; those that stay get the records it was to be sent and was not."""
        self.streams.pop(stream, None)
        if not self.streams:
            self._registry.note_idle(self)
        elif left_records:
            for other in self.streams:
                other.look_again()

    def drop(self) -> None:
        """Nothing is left to follow."""
        self._registry.drop(self)


class Sessions:
    """Every session by its id. The number is capped; 0 means it is not."""

    def __init__(
        self, clock: Clock, entropy: Callable[[int], bytes], *, max_sessions: int = 10_000
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._max_sessions = max_sessions
        self._by_wid: dict[str, Session] = {}
        self._idle: OrderedDict[str, float] = OrderedDict()  # since when, the longest first

    def __len__(self) -> int:
        return len(self._by_wid)

    def create(
        self,
        owner: int | None,
        *,
        places: Mapping[str, Place],
        options: Options,
        heartbeat_ms: int,
    ) -> Session:
        """A new session, idle until its stream is opened; `Throttled` at the cap."""
        self.sweep()
        if self._max_sessions and len(self._by_wid) >= self._max_sessions:
            raise Throttled("max_watch_sessions", maximum=self._max_sessions)
        wid = watch_id(self._entropy(WID_ENTROPY_BYTES))
        session = Session(
            self, wid, owner, places=places, options=options, heartbeat_ms=heartbeat_ms
        )
        self._by_wid[wid] = session
        self.note_idle(session)
        return session

    def find(self, wid: str) -> Session | None:
        """A session that may still be opened."""
        session = self._by_wid.get(wid)
        if session is not None and self._is_expired(wid):
            self.drop(session)
            return None
        return session

    def sweep(self) -> None:
        """Forget sessions that no client resumed in time."""
        while self._idle:
            wid = next(iter(self._idle))
            if not self._is_expired(wid):
                return
            self.drop(self._by_wid[wid])

    def _is_expired(self, wid: str) -> bool:
        since = self._idle.get(wid)
        return since is not None and (self._clock.monotonic() - since) * 1000 > IDLE_TTL_MS

    def note_busy(self, session: Session) -> None:
        self._idle.pop(session.wid, None)

    def note_idle(self, session: Session) -> None:
        if session.wid in self._by_wid:
            self._idle.pop(session.wid, None)
            self._idle[session.wid] = self._clock.monotonic()

    def drop(self, session: Session) -> None:
        self._by_wid.pop(session.wid, None)
        self._idle.pop(session.wid, None)

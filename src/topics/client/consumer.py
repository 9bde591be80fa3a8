"""A reader whose position is kept in the log under a name.

    consumer = log.consumer("orders", name="billing")
    for item in consumer:
        match item:
            case Record(): bill(item.data)
            case Tombstone(): alarm(item)
        consumer.commit()

What was handed out but not committed comes again after a restart: at least once. Commit as rarely
as you can afford to do work twice.
"""

# Made from `aio_consumer.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from topics.client._positions import Start, after_event, first_position
from topics.client._showing import Shown
from topics.client.interface import AnyLog
from topics.errors import NotFound
from topics.events import item_of
from topics.values import CursorState, Page, Record, Tombstone


class Consumer(Shown):
    """Reads a topic from its named cursor on. For one thread; give each consumer its own name."""

    def __init__(
        self,
        log: AnyLog,
        topic: str,
        *,
        name: str,
        start: Start = "earliest",
        limit: int = 256,
        node: str | Sequence[str] = (),
        match: str | Sequence[str] | None = None,
    ) -> None:
        """`start` is where a name that is not known yet begins: `earliest` or `latest`."""
        self.topic = topic
        self.name = name
        self._log = log
        self._start = start
        self._limit = limit
        self._node = node
        self._match = match
        self._position: int | None = None

    def _words(self) -> str:
        where = "" if self._position is None else f" at seq {self._position}"
        return f"{self.name!r} of {self.topic!r}{where}"

    @property
    def position(self) -> int:
        """The last seq that was handed out, or passed over because it holds nothing to hand out."""
        if self._position is None:
            self._position = self._find()
        return self._position

    def seek(self, seq: int) -> None:
        """Go on after `seq` instead. Nothing is committed by it."""
        self._position = seq

    def __iter__(self) -> Iterator[Record | Tombstone]:
        return self.follow()

    def follow(self, *, wait: float | None = None) -> Generator[Record | Tombstone, None, None]:
        """Records and tombstones from the position on, live, through restarts of the server.

        Ends after `wait` seconds without anything new; None waits for ever.
        """
        events = self._log.watch(
            {self.topic: self.position},
            limit=self._limit,
            node=self._node,
            match=self._match,
            wait=wait,
        )
        with closing(events):
            for event in events:
                self._position = after_event(event, self._position)
                item = item_of(event)
                if item is not None:
                    yield item

    def read(self, *, limit: int | None = None, wait: float = 0.0) -> Page:
        """One page from the position on; the position moves behind it."""
        page = self._log.read(
            self.topic,
            after=self.position,
            limit=self._limit if limit is None else limit,
            node=self._node,
            match=self._match,
            wait=wait,
        )
        self._position = page.next_from_seq
        return page

    def commit(self, seq: int | None = None) -> CursorState:
        """Keep the position, or `seq`, in the log: a successor of this name goes on behind it."""
        return self._log.set_cursor(self.topic, self.name, self.position if seq is None else seq)

    def lag(self) -> CursorState:
        """How far the committed position is behind: `lag_records` and `lag_seconds`.

        A name that was never committed is given its first position by this.
        """
        try:
            return self._log.cursor(self.topic, self.name)
        except NotFound:
            return self.commit(self.position)

    def _find(self) -> int:
        try:
            return (self._log.cursor(self.topic, self.name)).seq
        except NotFound:
            return first_position(self._start, self._log.state(self.topic, touch=False))

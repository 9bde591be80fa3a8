"""What a producer gathers, when it sends, and what it does about errors. No I/O, no clock.

Order and exactly-once come from two rules. One batch is on its way at a time, so a repeat cannot
overtake its successor. A batch keeps its idempotency key for all its repeats, and is not repeated
longer than the topic remembers keys; what cannot be decided by then is reported as failed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from topics.client._call import new_key
from topics.client._retry import is_passing, pause
from topics.errors import (
    BatchTooLarge,
    Internal,
    InvalidRequest,
    PayloadTooLarge,
    RecordTooLarge,
    TopicsError,
    Unreachable,
)
from topics.values import Ack
from topics.wire.drafts import batch_of

ENVELOPE_BYTES = 64
"""What a record costs in the buffer beside its payload."""
DEFAULT_WINDOW_MS = 120_000
LEAST_WINDOW_MS = 60_000
"""A topic that forgets keys sooner may be written twice by a repeat that was long on its way."""
_ABOUT_ONE_RECORD = (InvalidRequest, RecordTooLarge, PayloadTooLarge, BatchTooLarge)


class Delivery(NamedTuple):
    """What became of one record: its `seq`, or the `error` for which it was given up.

    After an `Unreachable` whose `sent` is true it may be in the log all the same.
    """

    seq: int | None
    error: TopicsError | None = None


OnDelivery = Callable[[Delivery], None]


class BatchSettings(NamedTuple):
    """How a producer gathers and how long it tries."""

    linger_ms: float = 5.0
    max_records: int = 1000
    max_bytes: int = 1 << 20
    buffer_records: int = 100_000
    buffer_bytes: int = 64 << 20
    delivery_timeout: float = 60.0
    allow_duplicates: bool = False

    def checked(self) -> BatchSettings:
        """Itself, if it makes sense."""
        for name in ("max_records", "max_bytes", "buffer_records", "buffer_bytes"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1")
        if self.linger_ms < 0 or self.delivery_timeout <= 0:
            raise InvalidRequest("linger_ms must be 0 or more, and delivery_timeout more than 0")
        return self


class _Draft(NamedTuple):
    fields: Mapping[str, Any]
    size: int
    on_delivery: OnDelivery | None


class Batch:
    """Records that are sent in one write, with the key that makes repeats harmless."""

    def __init__(self, drafts: list[_Draft]) -> None:
        self.drafts = drafts
        self.key = new_key()
        self._begun = math.inf
        self._tries = 0
        self.has_left = False  # it was sent, or is about to be
        self._lost: Unreachable | None = None  # the error of a try whose outcome is unknown

    def __len__(self) -> int:
        return len(self.drafts)

    @property
    def records(self) -> list[Mapping[str, Any]]:
        return [draft.fields for draft in self.drafts]

    def trying(self, now: float) -> None:
        """About to be sent, for the first time or again."""
        self._begun = min(self._begun, now)

    def judge(
        self, error: TopicsError, now: float, options: BatchSettings
    ) -> float | Literal["split"] | TopicsError:
        """Seconds until the next try, or to try halves, or what to say of records given up."""
        if self.has_left and isinstance(error, Unreachable) and error.sent:
            self._lost = error
        if is_passing(error):
            self._tries += 1
            wait = pause(self._tries, error)
            return wait if now + wait < self._begun + options.delivery_timeout else error
        if isinstance(error, _ABOUT_ONE_RECORD):
            if self._lost is not None:
                # A server whose limits were lowered checks a record before it looks for the key. So
                # all of this batch may be in the log, and its halves would have other keys.
                return self._lost
            if len(self) > 1:
                return "split"
        return error

    def halves(self) -> list[Batch]:
        """The same records in two writes: nothing of this one was appended."""
        middle = len(self) // 2
        return [Batch(self.drafts[:middle]), Batch(self.drafts[middle:])]

    def deliveries(self, outcome: Ack | TopicsError) -> list[tuple[OnDelivery, Delivery]]:
        """The callbacks to call, each with the delivery of its record."""
        told: list[tuple[OnDelivery, Delivery]] = []
        for index, draft in enumerate(self.drafts):
            if draft.on_delivery is not None:
                if isinstance(outcome, TopicsError):
                    told.append((draft.on_delivery, Delivery(None, outcome)))
                else:
                    told.append((draft.on_delivery, Delivery(outcome.first_seq + index)))
        return told


class Buffer:
    """Records on their way to a batch. `undecided` counts those not yet acked or given up."""

    def __init__(self, options: BatchSettings) -> None:
        self.options = options
        self._waiting: deque[_Draft] = deque()
        self._waiting_bytes = 0
        self._oldest_at = 0.0
        self.undecided = 0
        self._undecided_bytes = 0
        self.added = 0
        """How many records were ever taken in."""
        self.decided = 0
        """How many of them were acked or given up; in order, so a flush waits for a number."""

    def has_room(self, size: int) -> bool:
        """Whether a record fits; one always does, however large."""
        options = self.options
        return not self.undecided or (
            self.undecided < options.buffer_records
            and self._undecided_bytes + size <= options.buffer_bytes
        )

    def add(self, draft: _Draft, now: float) -> None:
        if not self._waiting:
            self._oldest_at = now
        self._waiting_bytes += draft.size
        self.undecided += 1
        self._undecided_bytes += draft.size
        self.added += 1
        self._waiting.append(draft)  # last: no exception of a signal handler comes before a call

    def due_in(self, now: float) -> float | None:
        """Seconds until a batch should go; 0 for now, None while there is nothing."""
        if not self._waiting:
            return None
        options = self.options
        if len(self._waiting) >= options.max_records or self._waiting_bytes >= options.max_bytes:
            return 0.0
        return max(0.0, self._oldest_at + options.linger_ms / 1000 - now)

    def take(self, now: float) -> Batch:
        """The next batch; at least one record, and no more than fit the bounds."""
        drafts = [self._waiting.popleft()]
        size = drafts[0].size
        while (
            self._waiting
            and len(drafts) < self.options.max_records
            and size + self._waiting[0].size <= self.options.max_bytes
        ):
            drafts.append(self._waiting.popleft())
            size += drafts[-1].size
        self._waiting_bytes -= size
        self._oldest_at = now - self.options.linger_ms / 1000  # what is left has lingered too
        return Batch(drafts)

    def settle(self, batch: Batch) -> None:
        """A batch was acked or given up."""
        self.undecided -= len(batch)
        self._undecided_bytes -= sum(draft.size for draft in batch.drafts)
        self.decided += len(batch)


def draft_of(
    data: object,
    tag: str | None,
    node: str | None,
    meta: object,
    on_delivery: OnDelivery | None,
) -> _Draft:
    """A record, judged and encoded now, so that its own caller gets the error."""
    given = {"tag": tag, "node": node, "meta": meta}
    fields: dict[str, Any] = {"data": data}
    fields |= {name: value for name, value in given.items() if value is not None}
    columns = batch_of(fields, None)
    fields["data"] = columns.datas[0]
    size = len(columns.datas[0]) + ENVELOPE_BYTES
    if columns.metas is not None:
        fields["meta"] = columns.metas[0]
        size += len(columns.metas[0])
    return _Draft(fields, size, on_delivery)


def check_window(topic: str, window_ms: int, options: BatchSettings) -> None:
    """Refuse a topic that forgets keys too soon for repeats to be harmless."""
    if window_ms < LEAST_WINDOW_MS and not options.allow_duplicates:
        raise InvalidRequest(
            f'topic "{topic}" forgets idempotency keys after {window_ms} ms; a producer needs '
            f"{LEAST_WINDOW_MS}. Raise idempotency_window_ms, or pass allow_duplicates=True"
        )


def bounded(options: BatchSettings, window_ms: int) -> BatchSettings:
    """The options with a delivery time-out that the topic's window covers twice."""
    return options._replace(
        delivery_timeout=min(options.delivery_timeout, max(window_ms, LEAST_WINDOW_MS) / 2000)
    )


def undecided(topic: str) -> Unreachable:
    """The error of records that were still on their way when `close` ran out of time."""
    return Unreachable(topic, reason="the producer was closed before an answer came", sent=True)


def unexpected(error: Exception) -> Internal:
    """An unexpected error, as the callbacks of the failed records get it."""
    internal = Internal(f"{type(error).__name__}: {error}")
    internal.__cause__ = error
    return internal

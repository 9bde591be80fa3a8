"""A writer that gathers records into batches and sends them from a thread of its own.

    with log.producer("orders", linger_ms=5) as orders:
        for order in source:
            orders.send(order, tag=order["customer"])

Records keep their order and are appended exactly once, also when answers are lost and the server
is killed meanwhile: see `_batching`.
"""

# Made from `aio_producer.py` by tools/make_sync.py: change that, then `make fmt`.

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from topics.client._batching import (
    DEFAULT_WINDOW_MS,
    Batch,
    BatchSettings,
    Buffer,
    Delivery,
    OnDelivery,
    bounded,
    check_window,
    draft_of,
    undecided,
    unexpected,
)
from topics.client._showing import Shown
from topics.client._sync_helper import CALLBACK_ERRORS, Helper, failure_of
from topics.client.interface import AnyLog
from topics.client.keywords import BatchOptions
from topics.errors import Closed, Throttled, TopicNotFound, TopicsError
from topics.topic_settings import TopicSettings
from topics.values import Ack

__all__ = ["Delivery", "Producer"]


class Producer(Shown):
    """Sends records of any number of threads to one topic.

    A batch goes when it has `max_records` or `max_bytes`, or when its oldest record has waited
    `linger_ms`. At most `buffer_records` and `buffer_bytes` are on their way; `send` waits for
    room beyond that. A record that could not be delivered within `delivery_timeout` seconds is
    given up. Its callback is told, and the next `flush` or `close` raises the first such error.
    """

    def __init__(
        self,
        log: AnyLog,
        topic: str,
        *,
        on_delivery: OnDelivery | None = None,
        create: bool | None = None,
        config: TopicSettings | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        self.topic = topic
        self._log = log
        self._on_delivery = on_delivery
        self._create = create
        self._config = config
        self._buffer = Buffer(BatchSettings(**options).checked())
        self._flush_to = 0
        self._is_closing = False
        self._failure: BaseException | None = None
        self._knows_window = False
        self._helper = Helper(self._work, f"topics-producer-{topic}")

    def _words(self) -> str:
        state = "closed" if self._is_closing else f"{self._buffer.undecided} records on their way"
        return f"for {self.topic!r}: {state}"

    def send(
        self,
        data: object,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: object = None,
        on_delivery: OnDelivery | None = None,
        timeout: float | None = None,
    ) -> None:
        """Hand over one record; returns before it is delivered.

        A value that is no JSON is refused here. Waits for room in the buffer, at most `timeout`
        seconds; then it raises `Throttled` and nothing was taken. `on_delivery` is called from
        the producer's thread, in order, once the record is acked or given up.
        """
        draft = draft_of(data, tag, node, meta, on_delivery or self._on_delivery)
        helper, buffer = self._helper, self._buffer
        with helper.lock:
            if not helper.wait_for(
                lambda: self._is_closing or buffer.has_room(draft.size), timeout
            ):
                raise Throttled("buffer_bytes", maximum=buffer.options.buffer_bytes)
            if self._is_closing:
                raise Closed("the producer is closed; make a new one")
            buffer.add(draft, helper.now())
            helper.begin()
            if buffer.due_in(helper.now()) == 0.0 or buffer.undecided == 1:
                helper.wake()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acked; raises the first error since last time."""
        with self._helper.lock:
            goal = self._buffer.added
            self._flush_to = max(self._flush_to, goal)
            self._helper.wake()
            if not self._helper.wait_for(lambda: self._buffer.decided >= goal, timeout):
                raise TimeoutError(f"{goal - self._buffer.decided} records are not acked yet")
            self._raise_failure()

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left and stop. After `timeout` seconds the rest is given up."""
        self._stop(timeout)
        self._raise_failure()

    def _stop(self, patience: float | None) -> None:
        with self._helper.lock:
            self._is_closing = True
            self._helper.wake()
        self._helper.end(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(None)
        if error is None:  # the caller's own error matters more
            self._raise_failure()

    # The producer's thread

    def _work(self, helper: Helper) -> None:
        while True:
            with helper.lock:
                while not self._is_due(helper.now()):
                    due = self._buffer.due_in(helper.now())
                    if due is None and self._is_closing:
                        return
                    helper.wait(due)
                batch = self._buffer.take(helper.now())
            self._deliver(batch)

    def _is_due(self, now: float) -> bool:
        """Whether to send a batch: it is full or old enough, or a `flush` waits for it."""
        due = self._buffer.due_in(now)
        in_a_hurry = self._is_closing or self._flush_to > self._buffer.decided
        return due == 0.0 or (due is not None and in_a_hurry)

    def _deliver(self, batch: Batch) -> None:
        while True:
            try:
                batch.trying(self._helper.now())
                self._learn_window()
                outcome: Ack | TopicsError = self._append(batch)
            except TopicsError as error:
                next_step = batch.judge(error, self._helper.now(), self._buffer.options)
                if next_step == "split":
                    for half in batch.halves():
                        self._deliver(half)
                    return
                if isinstance(next_step, TopicsError):
                    outcome = next_step
                elif self._helper.hurried(next_step):
                    outcome = undecided(self.topic)
                else:
                    continue
            except Exception as error:  # a bug: the callbacks of these records must be told
                outcome = unexpected(error)
            self._settle(batch, outcome)
            return

    def _append(self, batch: Batch) -> Ack:
        batch.has_left = True
        return self._log.append(
            self.topic,
            batch.records,
            idempotency_key=batch.key,
            create=self._create,
            config=self._config,
        )

    def _learn_window(self) -> None:
        if self._knows_window:
            return
        try:
            config = (self._log.state(self.topic, touch=False)).config
        except TopicNotFound:
            config = self._config or {}
        window_ms = config.get("idempotency_window_ms", DEFAULT_WINDOW_MS)
        check_window(self.topic, window_ms, self._buffer.options)
        self._buffer.options = bounded(self._buffer.options, window_ms)
        self._knows_window = True

    def _settle(self, batch: Batch, outcome: Ack | TopicsError) -> None:
        for told, delivery in batch.deliveries(outcome):
            try:
                told(delivery)
            except CALLBACK_ERRORS as error:  # the caller's code; its error is the caller's to see
                self._remember(failure_of(error))
        if isinstance(outcome, TopicsError):
            self._remember(outcome)
        with self._helper.lock:
            self._buffer.settle(batch)
            self._helper.wake()

    def _remember(self, error: BaseException) -> None:
        with self._helper.lock:
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        with self._helper.lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

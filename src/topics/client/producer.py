"""A writer that gathers records into batches and sends them from a thread of its own.

    with log.producer("orders", linger_ms=5) as orders:
        for order in source:
            orders.send(order, tag=order["customer"])

Records keep their order and are appended exactly once, also when answers are lost and the server
is killed meanwhile: see `_batching`.
"""

from __future__ import annotations

import threading
import time
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
from topics.client.interface import AnyLog
from topics.client.keywords import BatchOptions
from topics.client.signalled import SignalledEvent
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
        # Entered itself, not through the condition: an exception that a signal handler raises in
        # `Condition.__enter__` would leave it locked, and the threads waiting for ever.
        self._lock = threading.RLock()  # guards the buffer and what follows
        self._state = threading.Condition(self._lock)
        self._flush_to = 0
        self._is_closing = False
        self._failure: BaseException | None = None
        self._knows_window = False
        self._hurry = SignalledEvent()
        self._thread = threading.Thread(
            target=self._work, name=f"topics-producer-{topic}", daemon=True
        )
        self._thread.start()

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
        with self._lock:
            if not self._state.wait_for(
                lambda: self._is_closing or self._buffer.has_room(draft.size), timeout
            ):
                raise Throttled("buffer_bytes", maximum=self._buffer.options.buffer_bytes)
            if self._is_closing:
                raise Closed("the producer is closed; make a new one")
            self._buffer.add(draft, time.monotonic())
            self._state.notify_all()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acked; raises the first error since last time."""
        with self._lock:
            goal = self._buffer.added
            self._flush_to = max(self._flush_to, goal)
            self._state.notify_all()
            if not self._state.wait_for(lambda: self._buffer.decided >= goal, timeout):
                raise TimeoutError(f"{goal - self._buffer.decided} records are not acked yet")
            self._raise_failure()

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left and stop. After `timeout` seconds the rest is given up."""
        self._stop(timeout)
        with self._lock:
            self._raise_failure()

    def _stop(self, patience: float | None) -> None:
        with self._lock:
            self._is_closing = True
            self._state.notify_all()
        self._thread.join(patience)
        self._hurry.set()
        self._thread.join()

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
            with self._lock:
                self._raise_failure()

    # The producer's thread

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._await_batch():
                    return
                batch = self._buffer.take(time.monotonic())
            self._deliver(batch)

    def _await_batch(self) -> bool:
        """Wait, lock held, until a batch is due; False once there will be none."""
        while True:
            due = self._buffer.due_in(time.monotonic())
            in_a_hurry = self._is_closing or self._flush_to > self._buffer.decided
            if due is None and self._is_closing:
                return False
            if due == 0.0 or (due is not None and in_a_hurry):
                return True
            self._state.wait(due)

    def _deliver(self, batch: Batch) -> None:
        while True:
            try:
                batch.trying(time.monotonic())
                self._learn_window()
                outcome: Ack | TopicsError = self._append(batch)
            except TopicsError as error:
                next_step = batch.judge(error, time.monotonic(), self._buffer.options)
                if next_step == "split":
                    for half in batch.halves():
                        self._deliver(half)
                    return
                if isinstance(next_step, TopicsError):
                    outcome = next_step
                elif self._hurry.wait(next_step):
                    outcome = undecided(self.topic)
                else:
                    continue
            except Exception as error:  # a bug; but whoever waits for these records must hear of it
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
            config = self._log.state(self.topic, touch=False).config
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
            except BaseException as error:  # the caller's code; its error is the caller's to see
                self._remember(error)
        if isinstance(outcome, TopicsError):
            self._remember(outcome)
        with self._lock:
            self._buffer.settle(batch)
            self._state.notify_all()

    def _remember(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

"""Producers against a log in memory that fails when told to. Both shells, by one suite."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import topics
from topics.client._batching import Batch, BatchSettings, Delivery
from topics.client.aio_producer import AsyncProducer
from topics.client.producer import Producer
from topics.errors import Closed, Internal, InvalidRequest, Throttled, TopicsError, Unreachable
from topics.values import Ack, TopicState

LOST = Unreachable("http://h", reason="gone", sent=True)


class Flaky:
    """A log in memory; each append first takes an error from `errors`, if there is one.

    `Unreachable` comes after the append: done, but nobody was told.
    """

    def __init__(self, **config: Any) -> None:  # noqa: ANN401 - a topic's config
        self.log = topics.open()
        self.log.create("t", **config)
        self.errors: list[Exception] = []
        self.is_away = False
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def append(self, topic: str, records: Any, **options: Any) -> Ack:  # noqa: ANN401 - passed on
        assert self.gate.wait(60)
        self.sizes.append(len(records))
        error = self.errors.pop(0) if self.errors else None
        if error is not None and not isinstance(error, Unreachable):
            raise error
        ack = self.log.append(topic, records, **options)
        if error is not None:
            raise error
        return ack

    def state(self, topic: str, *, touch: bool = True) -> TopicState:
        if self.is_away:
            raise LOST
        return self.log.state(topic, touch=touch)

    @property
    def datas(self) -> list[Any]:
        return [record.data for record in self.log.read("t", limit=1000).records]


class AsyncFlaky:
    """The same for asyncio."""

    def __init__(self, inner: Flaky) -> None:
        self._inner = inner

    async def append(self, topic: str, records: Any, **options: Any) -> Ack:  # noqa: ANN401
        return await asyncio.to_thread(self._inner.append, topic, records, **options)

    async def state(self, topic: str, *, touch: bool = True) -> TopicState:
        return self._inner.state(topic, touch=touch)


Steps = Callable[[Any], Any]


def producing(shell: str, flaky: Flaky, steps: Steps, **options: Any) -> None:  # noqa: ANN401
    """Run `steps`, a coroutine function of a producer whose calls are all awaited."""
    if shell == "async":

        async def main() -> None:
            await steps(AsyncProducer(AsyncFlaky(flaky), "t", **options))  # type: ignore[arg-type]

        asyncio.run(main())
    else:
        asyncio.run(steps(_Awaited(Producer(flaky, "t", **options))))  # type: ignore[arg-type]


class _Awaited:
    """A blocking producer whose calls can be awaited; they block all the same."""

    def __init__(self, inner: Producer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method
        async def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            return await asyncio.to_thread(getattr(self._inner, name), *args, **options)

        return call


both = pytest.mark.parametrize("shell", ["sync", "async"])


@both
def test_a_lost_answer_does_not_double_a_batch(shell: str) -> None:
    flaky = Flaky()
    flaky.errors = [LOST, LOST]
    told: list[Delivery] = []

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        for n in range(10):
            await producer.send(n)
        await producer.close()

    producing(shell, flaky, steps, linger_ms=60_000, on_delivery=told.append)
    assert flaky.datas == list(range(10))
    assert [delivery.seq for delivery in told] == list(range(1, 11))
    assert flaky.sizes == [10, 10, 10]


@both
def test_batches_keep_their_bounds_and_their_order(shell: str) -> None:
    flaky = Flaky()

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        for n in range(25):
            await producer.send(n)
        await producer.flush()
        await producer.send("x" * 500)
        await producer.send("y" * 500)
        await producer.close()

    producing(shell, flaky, steps, max_records=10, max_bytes=1000, linger_ms=60_000)
    assert max(flaky.sizes) <= 10
    assert flaky.sizes[-2:] == [1, 1]  # two of those do not fit one batch
    assert flaky.datas == [*range(25), "x" * 500, "y" * 500]


@both
def test_a_batch_goes_after_its_linger_without_being_asked(shell: str) -> None:
    flaky = Flaky()

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        await producer.send(1, on_delivery=lambda _: loop.call_soon_threadsafe(arrived.set))
        await asyncio.wait_for(arrived.wait(), 60)
        assert flaky.datas == [1]
        await producer.close()

    producing(shell, flaky, steps, linger_ms=1)


@both
def test_a_full_buffer_makes_the_sender_wait_or_say_so(shell: str) -> None:
    flaky = Flaky()
    flaky.gate.clear()

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        for n in range(4):
            await producer.send(n)
        with pytest.raises(Throttled):
            await producer.send("too many", timeout=0.05)
        waiting = asyncio.ensure_future(producer.send(4))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        flaky.gate.set()
        await asyncio.wait_for(waiting, 60)
        await producer.close()

    producing(shell, flaky, steps, buffer_records=4, linger_ms=0)
    assert flaky.datas == [0, 1, 2, 3, 4]


@both
def test_what_cannot_be_delivered_is_given_up_told_and_raised_once(shell: str) -> None:
    flaky = Flaky()
    flaky.errors = [Internal("the disk")]
    told: list[Delivery] = []

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send("lost")
        with pytest.raises(Internal):
            await producer.flush()
        await producer.send("kept")
        await producer.flush()
        await producer.close()

    producing(shell, flaky, steps, on_delivery=told.append)
    assert isinstance(told[0].error, Internal)
    assert (told[1].seq, told[1].error) == (1, None)
    assert flaky.datas == ["kept"]


@both
def test_trying_ends_with_the_delivery_timeout(shell: str) -> None:
    flaky = Flaky()
    flaky.errors = [LOST] * 1000

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(Unreachable):
            await producer.close()

    producing(shell, flaky, steps, delivery_timeout=0.3)
    assert flaky.datas == [1]


@both
def test_trying_ends_though_the_topic_was_never_reached(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.client._batching.pause", lambda tries, error: 0.01)
    flaky = Flaky()
    flaky.is_away = True

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(Unreachable):
            await producer.flush(timeout=60)
        await producer.close()

    producing(shell, flaky, steps, delivery_timeout=0.3)
    assert flaky.sizes == []


@both
def test_no_batch_is_tried_longer_than_its_key_is_remembered(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by: list[float] = []
    judge = Batch.judge

    def noted(batch: Batch, error: TopicsError, now: float, options: BatchSettings) -> Any:  # noqa: ANN401
        judged_by.append(options.delivery_timeout)
        return judge(batch, error, now, options)

    monkeypatch.setattr(Batch, "judge", noted)
    flaky = Flaky(idempotency_window_ms=90_000)
    flaky.errors = [LOST]

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        await producer.close()

    producing(shell, flaky, steps, delivery_timeout=1_000_000)
    assert judged_by == [45.0]


@both
def test_an_error_nobody_thought_of_is_told_and_does_not_stop_the_producer(shell: str) -> None:
    flaky = Flaky()
    flaky.errors = [RuntimeError("out of threads")]

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send("lost")
        with pytest.raises(Internal, match="out of threads"):
            await producer.flush(timeout=60)
        await producer.send("kept")
        await producer.close()

    producing(shell, flaky, steps)
    assert flaky.datas == ["kept"]


@both
def test_a_batch_whose_answer_was_lost_is_not_tried_in_halves(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that takes less than before judges records before it looks for their key."""
    monkeypatch.setattr("topics.client._batching.pause", lambda tries, error: 0.01)
    flaky = Flaky()
    flaky.errors = [LOST, InvalidRequest("too large by now")]
    told: list[Delivery] = []

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        for n in (1, 2):
            await producer.send(n, on_delivery=told.append)
        with pytest.raises(Unreachable):
            await producer.close()

    producing(shell, flaky, steps, linger_ms=10_000)
    assert flaky.datas == [1, 2], "halves with keys of their own would be there twice"
    assert [delivery.error for delivery in told] == [LOST, LOST]


@both
def test_closing_in_a_hurry_gives_up_what_is_on_its_way(shell: str) -> None:
    flaky = Flaky()
    flaky.errors = [LOST] * 1000

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(Unreachable, match="closed"):
            await producer.close(timeout=0.1)
        with pytest.raises(Closed):
            await producer.send(2)

    producing(shell, flaky, steps)


@both
def test_a_flush_waits_only_so_long(shell: str) -> None:
    flaky = Flaky()
    flaky.gate.clear()

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(TimeoutError, match="1 records"):
            await producer.flush(timeout=0.05)
        flaky.gate.set()
        await producer.close()

    producing(shell, flaky, steps)


@both
def test_an_error_of_a_callback_reaches_whoever_flushes(shell: str) -> None:
    flaky = Flaky()

    def fail(delivery: Delivery) -> None:
        raise ZeroDivisionError

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(ZeroDivisionError):
            await producer.flush()
        await producer.close()

    producing(shell, flaky, steps, on_delivery=fail)
    assert flaky.datas == [1]


@both
def test_what_ends_a_with_block_is_raised_rather_than_what_a_callback_raised(shell: str) -> None:
    def fail(delivery: Delivery) -> None:
        raise ZeroDivisionError if shell == "async" else SystemExit

    async def async_block() -> None:
        made: Any = AsyncProducer(AsyncFlaky(Flaky()), "t", on_delivery=fail)  # type: ignore[arg-type]  # a fake log
        async with made as producer:
            await producer.send(1)
            raise KeyError("the caller's own")

    def block() -> None:
        with Producer(Flaky(), "t", on_delivery=fail) as producer:  # type: ignore[arg-type]  # a fake
            producer.send(1)
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        asyncio.run(async_block()) if shell == "async" else block()


def test_a_callback_that_ends_its_thread_does_not_end_the_producer() -> None:
    flaky = Flaky()
    with Producer(flaky, "t") as producer:  # type: ignore[arg-type]  # a fake log
        producer.send(1, on_delivery=lambda _: sys.exit("enough"))
        with pytest.raises(SystemExit, match="enough"):
            producer.flush(timeout=60)
        producer.send(2)
    assert flaky.datas == [1, 2]


def test_a_callback_that_asks_for_what_was_cancelled_does_not_end_the_producer() -> None:
    flaky = Flaky()

    async def main() -> None:
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        made: Any = AsyncProducer(AsyncFlaky(flaky), "t")  # type: ignore[arg-type]  # a fake log
        async with made as producer:
            await producer.send(1, on_delivery=lambda _: cancelled.result())
            with pytest.raises(RuntimeError, match="was cancelled"):
                await producer.flush(timeout=60)
            await producer.send(2)

    asyncio.run(main())
    assert flaky.datas == [1, 2]


@both
def test_a_topic_that_forgets_keys_too_soon_is_refused(shell: str) -> None:
    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(InvalidRequest, match="idempotency_window_ms"):
            await producer.close()

    flaky = Flaky(idempotency_window_ms=1000)
    producing(shell, flaky, steps)
    assert flaky.datas == []

    async def careless(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        await producer.close()

    producing(shell, flaky, careless, allow_duplicates=True)
    assert flaky.datas == [1]


@both
def test_why_a_topic_is_refused_is_told_though_its_state_was_first_asked_for_in_vain(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = Flaky(idempotency_window_ms=1000)
    flaky.is_away = True

    def back(tries: int, error: TopicsError) -> float:
        flaky.is_away = False
        return 0.01

    monkeypatch.setattr("topics.client._batching.pause", back)

    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        await producer.send(1)
        with pytest.raises(InvalidRequest, match="idempotency_window_ms"):
            await producer.close()

    producing(shell, flaky, steps)


@both
def test_a_value_that_is_no_json_is_refused_where_it_is_sent(shell: str) -> None:
    async def steps(producer: Any) -> None:  # noqa: ANN401 - of either shell
        with pytest.raises(InvalidRequest):
            await producer.send(object())
        await producer.close()

    flaky = Flaky()
    producing(shell, flaky, steps)
    assert flaky.sizes == []


def test_options_that_make_no_sense_are_refused() -> None:
    nonsense: list[dict[str, Any]] = [
        {"max_records": 0},
        {"linger_ms": -1},
        {"delivery_timeout": 0},
    ]
    for options in nonsense:
        with pytest.raises(InvalidRequest):
            Producer(topics.open(), "t", **options)
    with pytest.raises(TypeError):
        Producer(topics.open(), "t", max_recods=1)  # type: ignore[call-arg] # this is tested

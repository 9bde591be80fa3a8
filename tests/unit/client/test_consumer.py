import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from topics.client.aio_consumer import AsyncConsumer
from topics.client.consumer import Consumer
from topics.events import Arrived, CaughtUp, Event, Lost, Resumed
from topics.values import Record, Tombstone

RECORD = Record(1, 0, None, None, b"1", None)
LOSS = Tombstone(2, 5, "cap", 6, 7)
RESTART: list[Event] = [
    Arrived("t", RECORD),
    Resumed("the server went away", {"t": 1}, 0.5, 1),
    Lost("t", LOSS),
    CaughtUp("t", 7),
]


class Watched:
    """A log with one record, which notices when nobody watches it any more."""

    def __init__(self) -> None:
        self.is_watched = False

    async def watch(self, topics: Any, **options: Any) -> AsyncGenerator[Event, None]:  # noqa: ANN401
        self.is_watched = True
        try:
            yield Arrived("t", Record(1, 0, None, None, b"1", None))
            await asyncio.Event().wait()
        finally:
            self.is_watched = False


def test_a_reader_that_stops_early_has_let_go_of_its_stream() -> None:
    async def main() -> None:
        log = Watched()
        consumer = AsyncConsumer(log, "t", name="c")  # type: ignore[arg-type]
        consumer.seek(0)
        items: Any = consumer.follow()
        assert (await anext(items)).seq == 1
        assert log.is_watched
        await items.aclose()
        assert not log.is_watched

    asyncio.run(main())


class Restarted:
    """A log whose server was restarted while somebody watched; for either shell."""

    def watch(self, topics: Any, **options: Any) -> Any:  # noqa: ANN401
        yield from RESTART


class AsyncRestarted:
    async def watch(self, topics: Any, **options: Any) -> AsyncGenerator[Event, None]:  # noqa: ANN401
        for event in RESTART:
            yield event


def test_a_consumer_hands_out_records_and_losses_only_also_through_a_restart() -> None:
    consumer = Consumer(Restarted(), "t", name="c")  # type: ignore[arg-type]  # all it needs here
    consumer.seek(0)
    items = iter(consumer)
    assert (next(items), consumer.position) == (RECORD, 1)
    assert (next(items), consumer.position) == (LOSS, 5)
    assert (list(items), consumer.position) == ([], 7)


def test_an_asyncio_consumer_does_the_same() -> None:
    async def main() -> None:
        consumer = AsyncConsumer(AsyncRestarted(), "t", name="c")  # type: ignore[arg-type]  # as above
        consumer.seek(0)
        assert [item async for item in consumer] == [RECORD, LOSS]
        assert await consumer.where() == 7

    asyncio.run(main())

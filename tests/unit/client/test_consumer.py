import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from topics.client.aio_consumer import AsyncConsumer
from topics.events import Arrived, Event
from topics.values import Record


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

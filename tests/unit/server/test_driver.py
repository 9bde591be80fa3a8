"""Operations on an event loop leave nothing behind, however they end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from topics.engine.effects import Io, Op
from topics.errors import InvalidRequest, TopicsError
from topics.server.driver import Driver
from topics.storage.wal.submission import Submission


class Long(bytearray):
    """Something that takes much memory."""


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What only the collector could find stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_what_failed_on_a_thread_is_not_kept() -> None:
    kept: list[weakref.ref[Long]] = []
    errors: list[str] = []

    def work(body: Long) -> None:
        raise InvalidRequest(f"{len(body)} bytes are wrong")

    def op() -> Op[None]:
        body = Long(8)
        kept.append(weakref.ref(body))
        yield Io(lambda: work(body))

    async def scene() -> None:
        over = asyncio.Event()

        def done(_answer: object, error: TopicsError | None) -> None:
            errors.append(str(error))
            over.set()

        with ThreadPoolExecutor(1) as pool:
            driver = Driver(asyncio.get_running_loop(), pool)
            driver.start(op(), done)
            await over.wait()
            await driver.idle()
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert errors == ["8 bytes are wrong"]
    assert [held() for held in kept] == [None]


def test_an_answer_that_cannot_be_given_holds_up_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both wait for the same submission, and the first has nobody left to take its answer."""
    answers: list[str] = []
    shared = Submission(0, b"", 0, durable=False, on_done=lambda submission: None)

    class Log:
        def finish(self, settled: Sequence[Submission]) -> Sequence[Submission]:
            shared.done = True
            return settled

    def op() -> Op[str]:
        yield shared
        return "answer"

    def gone(_answer: object, _error: TopicsError | None) -> None:
        raise ConnectionError

    async def scene() -> None:
        driver = Driver(asyncio.get_running_loop(), ThreadPoolExecutor(1))
        driver.committer = Log()
        driver.start(op(), gone)
        driver.start(op(), lambda answer, _error: answers.append(str(answer)))
        driver.deliver([shared])
        await driver.idle()

    asyncio.run(scene())
    assert answers == ["answer"]
    assert "could not be given" in caplog.text

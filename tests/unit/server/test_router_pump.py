"""The router pump ends with the server: no new passes, and those under way are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from topics.batch import RecordBatch
from topics.engine.effects import Op, run
from topics.engine.engine import Engine, memory_engine
from topics.engine.routers.routing import RouterSpec
from topics.engine.settings import EngineSettings
from topics.server.routers import RouterPump


class HeldDriver:
    """Takes operations and runs them when told to."""

    def __init__(self) -> None:
        self.held: list[tuple[Op[Any], Callable[..., None]]] = []

    def start(self, op: Op[Any], done: Callable[..., None]) -> None:
        self.held.append((op, done))

    def release(self) -> None:
        held, self.held = self.held, []
        for op, done in held:
            done(run(op), None)


def engine_with_router() -> Engine:
    engine = memory_engine(EngineSettings())
    run(engine.routing.put("r", RouterSpec(source="a", dest="b")))
    run(engine.append("a", RecordBatch([b"1"], None, None, None)))
    return engine


def test_a_stopped_pump_is_joined_once_its_passes_are_over() -> None:
    async def scene() -> None:
        driver, engine = HeldDriver(), engine_with_router()
        pump = RouterPump(engine, driver, asyncio.get_running_loop(), lambda topic: None)  # type: ignore[arg-type]
        pump.run()
        assert len(driver.held) == 1
        pump.stop()
        joining = asyncio.create_task(pump.join())
        await asyncio.sleep(0)
        assert not joining.done(), "a pass is under way"
        driver.release()
        await joining
        assert engine.kernel.catalog.by_name["b"].head == 1
        pump.serve(engine.kernel.catalog.by_name["a"])
        pump.run()
        assert driver.held == [], "nothing begins after the end"

    asyncio.run(scene())


def test_an_idle_pump_is_joined_at_once() -> None:
    async def scene() -> None:
        engine = memory_engine(EngineSettings())
        pump = RouterPump(engine, HeldDriver(), asyncio.get_running_loop(), lambda topic: None)  # type: ignore[arg-type]
        pump.stop()
        await pump.join()

    asyncio.run(scene())

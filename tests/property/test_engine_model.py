"""The engine against the reference model, in memory, on a simulated disk and on a real one.

    pytest tests/property/test_engine_model.py      some seconds
    pytest tests/property/test_engine_model.py -k Simulated --hypothesis-profile=soak --timeout=0
                                                    until it is stopped or finds something

A failure prints the steps that led to it and a `@reproduce_failure` line; put that line above the
test class named in the report and run it alone.
"""

import pytest
from hypothesis import settings
from tests.property.model.endings import MortalMachine
from tests.property.model.machine import EngineMachine
from tests.property.model.oracle import Cfg, Draft
from tests.property.model.stores import MemoryStore, RealStore, SimStore


class InMemory(EngineMachine):
    make_store = MemoryStore


class OnSimulatedDisk(MortalMachine):
    make_store = SimStore


class OnRealFiles(MortalMachine):
    make_store = RealStore


TestInMemory = InMemory.TestCase
TestSw02OnSimulatedDisk = OnSimulatedDisk.TestCase
TestOnRealFiles = OnRealFiles.TestCase
# Real syncs take their time.
TestOnRealFiles.settings = settings(max_examples=settings().max_examples // 4)


@pytest.mark.parametrize("cfg", [Cfg("fsync", ttl_ms=50), Cfg("memory", ttl_ms=1000)])
@pytest.mark.parametrize("calls", range(1, 15))
def test_a_configure_may_die_in_the_checkpoint_that_runs_before_it(calls: int, cfg: Cfg) -> None:
    state = OnSimulatedDisk()
    batch = [Draft("x", None, None, None)]
    state.start(
        {"wal_shards": 2}, use_cold=False, look_ms=0, first=Cfg("memory", 1000), batch=batch
    )
    state.kill(shards=1, doubt=False)  # with another number of shards: a checkpoint is due
    state.let_time_pass(5000)
    state.die_soon(calls, end=None)
    state.configure("a", cfg)
    state.teardown()

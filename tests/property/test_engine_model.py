"""The engine against the reference model, in memory, on a simulated disk and on a real one.

    pytest tests/property/test_engine_model.py      some seconds
    pytest tests/property/test_engine_model.py -k Simulated --hypothesis-profile=soak --timeout=0
                                                    until it is stopped or finds something

A failure prints the steps that led to it and a `@reproduce_failure` line; put that line above the
test class named in the report and run it alone.
"""

from hypothesis import settings
from tests.property.model.endings import MortalMachine
from tests.property.model.machine import EngineMachine
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

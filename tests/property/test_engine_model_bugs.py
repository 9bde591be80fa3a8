"""Every planted bug is found by the model run that the engine itself survives."""

import inspect

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RULE_MARKER, run_state_machine_as_test
from tests.property.model.bugs import BUGS, Bug
from tests.property.test_engine_model import OnSimulatedDisk

from topics.errors import TopicsError

PATIENCE = settings(
    max_examples=3000,
    stateful_step_count=20,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def focused_on(steps: frozenset[str]) -> type[OnSimulatedDisk]:
    """The machine with these of its steps only."""
    members = inspect.getmembers(OnSimulatedDisk)
    known = {name for name, member in members if hasattr(member, RULE_MARKER)}
    assert steps <= known
    return type("Focused", (OnSimulatedDisk,), dict.fromkeys(known - steps))


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_the_model_run_finds(bug: Bug) -> None:
    machine = focused_on(bug.steps)
    with bug.plant(), pytest.raises((AssertionError, TopicsError, OSError)):
        run_state_machine_as_test(machine, settings=PATIENCE)


@pytest.mark.parametrize("steps", sorted({tuple(sorted(bug.steps)) for bug in BUGS.values()}))
def test_it_finds_nothing_where_nothing_is_planted(steps: tuple[str, ...]) -> None:
    machine = focused_on(frozenset(steps))
    run_state_machine_as_test(machine, settings=settings(PATIENCE, max_examples=20))

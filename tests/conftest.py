"""Settings that every test tier shares.

Hypothesis runs with the `quick` profile unless told otherwise; ask for more with
`pytest --hypothesis-profile=full tests/property`. Neither has a deadline per example: these tests
touch real disks on shared machines, and a slow one is not a wrong one.

A random test that fails says by which command, seed included, it fails again.
"""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from tests.seeds import seed_for

_NOT_A_BUG = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "quick",
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=_NOT_A_BUG,
)
settings.register_profile(
    "full",
    max_examples=300,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=_NOT_A_BUG,
    print_blob=True,
)
settings.load_profile("quick")

_SEED = "hypothesis_seed"
_PROFILE = "hypothesis_profile"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis a seed that is known, unless the caller did.

    Not for a soak: what it found after hours is had again at once from the examples it keeps,
    which Hypothesis does only without a seed.
    """
    given = getattr(config.option, _SEED, None)
    if given is None and getattr(config.option, _PROFILE, None) != "soak":
        setattr(config.option, _SEED, str(seed_for("TOPICS_HYPOTHESIS_SEED")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed and is_hypothesis_test(getattr(item, "obj", None)):
        given = {
            "--hypothesis-seed": getattr(item.config.option, _SEED, None),
            "--hypothesis-profile": getattr(item.config.option, _PROFILE, None),
        }
        options = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        command = f".venv/bin/python -m pytest {options} '{item.nodeid}'"
        report.sections.append(("Again", command))
    return report

"""Settings that every test tier shares.

Hypothesis runs with the `quick` profile unless told otherwise; ask for more with
`pytest --hypothesis-profile=full tests/property`. Neither has a deadline per example: these tests
touch real disks on shared machines, and a slow one is not a wrong one.

Each run draws a seed of its own. A test that fails with it says by which command it fails again.
"""

import secrets
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

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
    """Give Hypothesis a seed that is known, unless the caller did."""
    if getattr(config.option, _SEED, None) is None:
        setattr(config.option, _SEED, str(secrets.randbits(64)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed and is_hypothesis_test(getattr(item, "obj", None)):
        options = [f"--hypothesis-seed={getattr(item.config.option, _SEED)}"]
        profile = getattr(item.config.option, _PROFILE, None)
        if profile is not None:
            options.append(f"--hypothesis-profile={profile}")
        command = f".venv/bin/python -m pytest {' '.join(options)} '{item.nodeid}'"
        report.sections.append(("Again", command))
    return report

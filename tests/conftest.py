"""Settings that every test tier shares.

Hypothesis runs with the `quick` profile unless told otherwise; ask for more with
`pytest --hypothesis-profile=full tests/property`. Neither has a deadline per example: these tests
touch real disks on shared machines, and a slow one is not a wrong one.
"""

from hypothesis import HealthCheck, settings

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

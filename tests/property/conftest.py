"""A profile for the property tests that runs until it is stopped, or finds something."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "soak",
    max_examples=10_000_000,
    stateful_step_count=80,
    deadline=None,
    print_blob=True,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)

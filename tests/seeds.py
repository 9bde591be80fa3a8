"""The seeds of everything random in the tests.

A run draws the same as the one before it, so that a test which fails did so because of a change
and not of luck. `tools/run_tests.py --fresh` draws anew, which is how to look for what no run has
found yet. A seed given by name goes before both.
"""

from __future__ import annotations

import os
import secrets

FRESH = "TOPICS_FRESH_SEEDS"
"""The variable that asks for new draws, whatever its value."""


def seed_for(variable: str, number: int = 1) -> int:
    """The seed in a variable of the environment; else a new one if asked for, else `number`."""
    given = os.environ.get(variable)
    if given:
        return int(given)
    return secrets.randbelow(1 << 32) if os.environ.get(FRESH) else number

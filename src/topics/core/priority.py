"""How urgent a topic is: set by hand, or by how recently it was read.

A topic that waits to be served gets more urgent with time, so that no topic waits for ever.
"""

from __future__ import annotations

import math

from topics.core.topic import Topic

MANUAL_MAX = 1000
AUTO_MAX = 500
HALF_LIFE_MS = 30_000
AUTO_FLOOR_MS = 300_000
AGE_PER_MS = 0.1
AGE_CAP_MS = 10_000


def base_priority(topic: Topic, now_ms: int) -> float:
    config = topic.config
    if config.priority is not None:
        return max(-MANUAL_MAX, min(MANUAL_MAX, config.priority))
    if not config.auto_priority or topic.last_consumed is None:
        return 0
    idle_ms = max(0, now_ms - topic.last_consumed)
    if idle_ms >= AUTO_FLOOR_MS:
        return 0
    return AUTO_MAX * math.exp2(-idle_ms / HALF_LIFE_MS)


def aged(base: float, waiting_ms: int) -> int:
    """What a base priority counts for after a wait."""
    return _rounded(base + AGE_PER_MS * min(max(0, waiting_ms), AGE_CAP_MS))


def shown_priority(topic: Topic, now_ms: int) -> int:
    """The base priority as an integer."""
    return _rounded(base_priority(topic, now_ms))


def _rounded(value: float) -> int:
    """The nearest integer; half of one counts away from zero."""
    return int(value + 0.5) if value >= 0 else -int(-value + 0.5)

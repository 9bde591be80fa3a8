"""How urgent a topic is: set by hand, or by how recently somebody consumed it."""

from __future__ import annotations

import math

from topics.core.topic import Topic

MANUAL_MAX = 1000
AUTO_MAX = 500
HALF_LIFE_MS = 30_000
AUTO_FLOOR_MS = 300_000


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


def shown_priority(topic: Topic, now_ms: int) -> int:
    """The base priority as an integer, rounded half away from zero."""
    base = base_priority(topic, now_ms)
    return int(base + 0.5) if base >= 0 else -int(-base + 0.5)

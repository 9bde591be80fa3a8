"""Small choices that both shells make alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DEFAULT_NODE = "client"
"""The worker of a queue when the caller names none."""


def starts_of(topics: Iterable[str] | Mapping[str, int | None]) -> dict[str, int | None]:
    """Topics to watch and where each begins; a bare name is read from the beginning."""
    if isinstance(topics, Mapping):
        return dict(topics)
    names = (topics,) if isinstance(topics, str) else topics
    return dict.fromkeys(names, 0)

"""Small choices that both shells make alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, quote, urlsplit

DEFAULT_NODE = "client"
"""The worker of a queue when the caller names none."""


def starts_of(topics: Iterable[str] | Mapping[str, int | None]) -> dict[str, int | None]:
    """Topics to watch and where each begins; a bare name is read from the beginning."""
    if isinstance(topics, Mapping):
        return dict(topics)
    names = (topics,) if isinstance(topics, str) else topics
    return dict.fromkeys(names, 0)


def split_address(url: str) -> SplitResult | None:
    """The parts of a server's address; None for what cannot be one."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        possible = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:  # a bracket too few, a port that is no number, a name too long
        return None
    return parts if possible else None


def quoted(name: str) -> str:
    """A name as a part of a path. What is no UTF-8 stays the name of nothing."""
    return quote(name, safe="", errors="backslashreplace")

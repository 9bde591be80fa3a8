"""Points in time, durations and sizes as people write them in options."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from topics.spark.errors import InvalidOption

_UNITS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def moment_ms(option: str, text: str, *, now_ms: int) -> int:
    """Milliseconds since the epoch: as a number, in ISO 8601, or as `-10 minutes` from now."""
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        return int(text)
    if text.startswith("-"):
        return max(0, now_ms - duration_ms(option, text[1:].strip()))
    if text == "now":
        return now_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(
            f"{option} takes milliseconds since 1970, a time like 2026-01-31T08:00:00Z, or one "
            f"like '-10 minutes'; got {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def duration_ms(option: str, text: str) -> int:
    """A length of time such as `15m`, `30 seconds` or `500ms`."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found[2] if found else ""
    scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if found is None or scale is None:
        raise InvalidOption(f"{option} takes a time such as '10 minutes' or '30s'; got {text!r}")
    return int(float(found[1]) * scale)


def size_bytes(option: str, text: str) -> int:
    """A number of bytes, or one such as `64m`."""
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidOption(f"{option} takes a number of bytes, or one such as 64m; got {text!r}")
    return int(found[1]) * _SIZES[found[2]]

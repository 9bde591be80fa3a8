"""Times, spans, sizes and counts as people read them in the sentences of commands and server."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(ms: int | None) -> str:
    """A time of the log, in UTC; a dash for never."""
    if ms is None:
        return "-"
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def span(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, name, smaller, smaller_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit}{name} {whole % unit // smaller}{smaller_name}"
    raise AssertionError(seconds)


def counted(number: int, thing: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def counted_and(number: int, thing: str, one: str, several: str) -> str:
    """`1 record was`, `2 records were`."""
    return f"{counted(number, thing)} {one if number == 1 else several}"


def seqs(first: int | None, last: int | None) -> str:
    """`seq 1`, `seq 1 to 3`."""
    return f"seq {first}" if first == last else f"seq {first} to {last}"


def size(count: float) -> str:
    """Bytes in the unit that keeps them short."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

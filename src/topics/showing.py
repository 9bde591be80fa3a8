"""How records look at a prompt and in a notebook: short, and safe whatever a record holds."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

MOST_BYTES = 200
"""What is shown of the JSON of one record."""
MOST_ROWS = 100
"""How many records a table in a notebook has; a line at the prompt has three."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ts: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=ts)


def moment(ts: int) -> str:
    """A time for people; a number that is no valid time stays a number."""
    try:
        text = time_of(ts).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(ts)
    return text.removesuffix("+00:00") + "Z"


def short(raw: bytes) -> str:
    """Stored JSON as text, cut where it gets long."""
    is_long = len(raw) > MOST_BYTES
    text = raw[:MOST_BYTES].decode("utf-8", "ignore" if is_long else "replace")
    if not text.isprintable():  # what would steer a terminal, or turn the line around
        text = "".join(map(_printable, text))
    return f"{text}... ({len(raw)} bytes)" if is_long else text


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def line(kind: str, facts: Iterable[tuple[str, object]]) -> str:
    """`Kind(name=fact, ...)`, without the facts that are None."""
    shown = (f"{name}={fact}" for name, fact in facts if fact is not None)
    return f"{kind}({', '.join(shown)})"


def table(titles: Sequence[str], rows: Iterable[Sequence[str | None]], notes: Iterable[str]) -> str:
    """An HTML table with notes above it; every text is escaped."""
    from html import escape  # noqa: PLC0415 - few programs are notebooks

    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell or '')}</td>" for cell in row) + "</tr>" for row in rows
    )
    above = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

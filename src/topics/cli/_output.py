"""How commands print: plain lines that a pipe can take, a little emphasis on a terminal.

Names, tags and the texts of errors may come from any writer, or from a hostile server. A control
character in them could rewrite the reader's screen, so it is shown as an escape. JSON escapes most
of these characters by itself, and means the same with the others escaped.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_JSON_CONTROL = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def print_json(document: object) -> None:
    """One JSON document, for people too."""
    print(safe_json(json.dumps(document, indent=2, ensure_ascii=False, default=str)))


def print_json_line(document: object) -> None:
    """One of many, on a line of its own, flushed at once: a program may be waiting for the line.

    Stored JSON is passed on as it is: put it in as `msgspec.Raw`.
    """
    print(safe_json(msgspec.json.encode(document).decode()), flush=True)


def notices(about: str) -> Callable[[str], None]:
    """What prints words about a long job beside its output."""
    return lambda line: print(f"{about}: {safe(line)}", file=sys.stderr, flush=True)


def tell(document: object, words: str, *, as_json: bool) -> None:
    """The outcome of a command: a document for programs, a line for people."""
    if as_json:
        print_json(document)
    else:
        print(words)


def print_list(
    what: str,
    found: Sequence[Any],
    headings: Sequence[str],
    row: Callable[[Any], Sequence[object]],
    *,
    as_json: bool,
) -> None:
    """What a command lists: `found` are results of the Python API; `what` names them."""
    if as_json:
        print_json({what: [item.to_dict() for item in found]})
    elif found:
        print_table(headings, map(row, found))
    else:
        print(f"no {what}", file=sys.stderr)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under headings; numbers to the right. No frames, so `awk` can have its fields."""
    cells = [[safe(_shown(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    to_right = [
        bool(cells) and all(_is_number(row[index]) for row in cells)
        for index in range(len(headings))
    ]
    print(style(_line([heading.upper() for heading in headings], widths, to_right), "bold"))
    for row in cells:
        print(_line(row, widths, to_right))


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values below each other."""
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        print(f"{name:<{width}}{safe(_shown(value))}")


def safe(text: str) -> str:
    """Text that cannot move the cursor, change colours or turn the writing around."""
    return _CONTROL.sub(_escaped, text)


def safe_json(text: str) -> str:
    """The same JSON, with escapes for what JSON may hold but a terminal would obey."""
    return _JSON_CONTROL.sub(_escaped, text)


def stored_json(text: str) -> str:
    """Stored JSON as it is for a program, and without what a terminal would obey for people."""
    return safe_json(text) if sys.stdout.isatty() else text


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def style(text: str, *names: str) -> str:
    """Emphasis, where it is seen and wanted."""
    if not is_terminal():
        return text
    return f"\033[{';'.join(_STYLES[name] for name in names)}m{text}\033[0m"


def is_terminal() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


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


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, to_right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell == "-"

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
from typing import Any

import msgspec

from topics.wire.plain import counted, counted_and, moment, seqs, size, span

__all__ = ["counted", "counted_and", "moment", "seqs", "size", "span"]

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

"""The command line that every benchmark has: which rows, how large, where, for whom."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from topics.bench import table
from topics.bench.bench import Bench, Row
from topics.bench.measure import Result

FULL, QUICK = (1.0, 7), (0.02, 3)


def run(name: str, about: str, rows: Mapping[str, Row], argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    chosen = _parser(name, about, rows).parse_args(argv)
    unknown = [row for row in chosen.rows if row not in rows]
    if unknown:
        print(f"no row {unknown[0]!r}; rows: {', '.join(rows)}", file=sys.stderr)
        return 2
    scale, repeats = QUICK if chosen.quick else FULL
    results: list[Result] = []
    with table.progress() as say:
        bench = Bench(chosen.dir, chosen.scale or scale, repeats, say)
        for row in chosen.rows or rows:
            results += rows[row](bench)
    if chosen.json:
        table.print_json(results)
    else:
        table.print_table(results)
    return 0


def _parser(name: str, about: str, rows: Mapping[str, Row]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"topics bench {name}", description=about)
    parser.add_argument(
        "--rows",
        type=lambda text: [row for row in text.split(",") if row],
        default=[],
        help=f"only these, separated by commas: {', '.join(rows)}",
    )
    parser.add_argument("--quick", action="store_true", help="small counts: a look in seconds")
    parser.add_argument(
        "--scale", type=float, default=0.0, help="multiply every count (1 is the goals' size)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="directory on the disk to measure (default: the temporary directory)",
    )
    return parser

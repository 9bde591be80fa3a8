"""`topics bench engine`: how fast the embedded engine is, and how much memory it takes.

Method. Rates are medians of several repeats, with the best repeat beside them. Records have 100
bytes of JSON and are made before the clock starts; a write's cost includes turning a dict into
JSON where the row says dicts, and checking the JSON where it says ready JSON. The bare operation
(a write, a write with fdatasync, a read, a copy in memory, each of as many bytes) is timed in the
same run on the same disk, and `ratio` is measured / raw. Reads find their bytes in the page cache.
Rows about memory and about starting run in processes of their own. Nothing here passes or fails:
a number that misses its goal is printed as it is.

The disk matters more than anything else for rows with a sync: choose it with `--dir`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from topics.bench import appending, growth, memory, reading, starting, table
from topics.bench.bench import Bench, Row
from topics.bench.measure import Result

ROWS: dict[str, Row] = {
    "append1": appending.append_one,
    "append100": appending.append_many,
    "fsync100": appending.append_durably,
    "fsync1": appending.lone_sync,
    "read-cache": reading.from_cache,
    "read-sealed": reading.from_segments,
    "open": starting.after_kill,
    "import": starting.first_ack,
    "memory": memory.per_record,
    "memory-tags": memory.tags,
    "memory10m": memory.opened,
    "flat": growth.flatness,
}
FULL, QUICK = (1.0, 7), (0.02, 3)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    chosen = _parser().parse_args(argv)
    unknown = [name for name in chosen.rows if name not in ROWS]
    if unknown:
        print(f"no row {unknown[0]!r}; rows: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    scale, repeats = QUICK if chosen.quick else FULL
    results: list[Result] = []
    with table.progress() as say:
        bench = Bench(chosen.dir, chosen.scale or scale, repeats, say)
        for name in chosen.rows or ROWS:
            results += ROWS[name](bench)
    if chosen.json:
        table.print_json(results)
    else:
        table.print_table(results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics bench engine", description="Speed and memory of the embedded engine."
    )
    parser.add_argument(
        "--rows",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        help=f"only these, separated by commas: {', '.join(ROWS)}",
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


if __name__ == "__main__":
    sys.exit(main())

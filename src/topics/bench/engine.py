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

import sys
from collections.abc import Sequence

from topics.bench import appending, growth, reading, starting
from topics.bench.bench import Row, run

ROWS: dict[str, Row] = {
    "append1": appending.append_one,
    "append100": appending.append_many,
    "fsync100": appending.append_durably,
    "fsync1": appending.lone_sync,
    "read-cache": reading.from_cache,
    "read-sealed": reading.from_segments,
    "open": starting.after_kill,
    "import": starting.first_ack,
    "memory": starting.memory_per_record,
    "memory-tags": starting.memory_of_tags,
    "memory10m": starting.memory_opened,
    "checkpoint": growth.checkpoints,
    "flat": growth.flatness,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen rows and print them."""
    return run("engine", "Speed and memory of the embedded engine.", ROWS, argv)


if __name__ == "__main__":
    sys.exit(main())

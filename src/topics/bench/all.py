"""`topics bench all`: every benchmark, one after the other, with the same options.

Spark's is left out unless Spark is installed. A benchmark that fails is named at the end, and the
others run all the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

ORDER = ("engine", "server", "queues", "routers", "stalls", "compare.command", "spark")


def main(argv: Sequence[str] | None = None) -> int:
    """Run them all; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="topics bench all", description="Every benchmark.")
    parser.add_argument("--quick", action="store_true", help="small counts: a look at every row")
    parser.add_argument("--scale", type=float, help="multiply every count (1 is the goals' size)")
    parser.add_argument(
        "--dir", default=tempfile.gettempdir(), help="directory on the disk to measure"
    )
    chosen = parser.parse_args(argv)
    options = ["--dir", chosen.dir, *(["--quick"] if chosen.quick else [])]
    options += [] if chosen.scale is None else ["--scale", str(chosen.scale)]
    failed = []
    for name in ORDER:
        short = name.partition(".")[0]
        if name == "spark" and find_spec("pyspark") is None:
            print("topics bench spark is left out: pip install 'topics[spark]'")
            continue
        print(f"topics bench {short}", flush=True)
        began = time.monotonic()
        if not _succeeds(name, options):
            failed.append(short)
        print(f"topics bench {short} took {time.monotonic() - began:.0f} s\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _succeeds(name: str, options: list[str]) -> bool:
    try:
        status: int = import_module(f"topics.bench.{name}").main(options)
    except Exception as error:
        # One benchmark may lack a program or a peer; the numbers of the others are still wanted.
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return False
    return status == 0

"""Run the test tiers in lanes, side by side, and say what each one took.

A tier is a folder under tests/; a lane is a list of tiers run one after the other, each in a pytest
of its own. Lanes run at the same time, so a lane's output is kept until it is of use: one line when
a tier ends, now and then a sign of life, and all of pytest's words for a tier that fails.

A tier without tests fails, and so does a skipped test: what did not run has not passed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 5
"""How many tests of a tier are named with their time, so that slow ones are found quickly."""
ROOT = Path(__file__).resolve().parent.parent
NOTICE_EVERY_S = 10.0
LIGHT = ("-p", "no:schemathesis")  # takes more than a second to import, in every worker
TWO_WORKERS = ("-n", "2", "--dist", "worksteal", *LIGHT)
TWO_WORKERS_BY_FILE = ("-n", "2", "--dist", "loadfile")
"""For tests whose files share a server: it is started once."""


@dataclass(frozen=True)
class Tier:
    """A folder of tests, and how pytest runs it."""

    name: str
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of one tier. `failed` counts tests, errors and a pytest that broke down."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    slowest: Sequence[tuple[float, str]] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            sorted([*self.slowest, *other.slowest], reverse=True)[:SLOWEST],
        )

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"

    @property
    def is_good(self) -> bool:
        return self.passed > 0 and self.failed == 0 and self.skipped == 0


@dataclass
class Lane:
    """Tiers that share one place in the queue, with what they took.

    A lane with a niceness lets the others go first: the one with the least to do, so that all
    end at about the same time.
    """

    name: str
    tiers: Sequence[Tier]
    niceness: int = 0
    results: list[tuple[Tier, Outcome, float]] = field(default_factory=list)


FULL = [
    Lane(
        "engine",
        [
            Tier("unit", TWO_WORKERS),
            Tier("property", (*TWO_WORKERS, "--timeout=600")),
            Tier("formats", TWO_WORKERS),
            Tier("crash", (*TWO_WORKERS, "--timeout=600")),
        ],
        niceness=5,
    ),
    Lane(
        "server",
        [
            Tier("blackbox", (*TWO_WORKERS_BY_FILE, "--timeout=300")),
            Tier("fuzz", ("--timeout=300",)),
            Tier("browser", ("--timeout=300", *LIGHT)),
            Tier("docs", ("--timeout=300", *LIGHT)),
            Tier("examples", ("--timeout=900", *LIGHT)),
            Tier("instructions", ("--timeout=600", *LIGHT)),
        ],
    ),
    Lane("spark", [Tier("spark", ("--timeout=900", *LIGHT))]),
]
QUICK = [
    Lane(
        "quick",
        [
            Tier("unit", TWO_WORKERS),
            Tier("property", (*TWO_WORKERS, "--hypothesis-profile=quick")),
        ],
    ),
]
_printing = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the tiers of `make check`")
    parser.add_argument("--fresh", action="store_true", help="draw other random cases than always")
    parser.add_argument("tiers", nargs="*", help="only these tiers")
    arguments = parser.parse_args()
    lanes = choose(QUICK if arguments.quick else FULL, arguments.tiers)
    if arguments.fresh:
        os.environ["TOPICS_FRESH_SEEDS"] = "1"
    started = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(run_lane, lanes))
    sys.exit(summarise(lanes, time.monotonic() - started))


def choose(lanes: Sequence[Lane], names: Sequence[str]) -> list[Lane]:
    known = {tier.name for lane in lanes for tier in lane.tiers}
    unknown = set(names) - known
    if unknown:
        sys.exit(f"run_tests: no tier named {', '.join(sorted(unknown))}")
    chosen = names or known
    picked = [replace(lane, tiers=[t for t in lane.tiers if t.name in chosen]) for lane in lanes]
    return [lane for lane in picked if lane.tiers]


def run_lane(lane: Lane) -> None:
    for tier in lane.tiers:
        started = time.monotonic()
        outcome, output = run_tier(lane, tier)
        took = time.monotonic() - started
        lane.results.append((tier, outcome, took))
        detail = "" if outcome.is_good else f"\n{output.rstrip()}\n"
        say(f"[{lane.name}] {tier.name}: {outcome} in {took:.1f} s{detail}")


def run_tier(lane: Lane, tier: Tier) -> tuple[Outcome, str]:
    folder = ROOT / "tests" / tier.name
    if not any(folder.rglob("test_*.py")):
        return Outcome(failed=1), f"tests/{tier.name} holds no tests"
    with tempfile.TemporaryDirectory(prefix="topics-tests-") as scratch:
        report = Path(scratch, "report.xml")
        command = ["nice", "-n", str(lane.niceness), sys.executable, "-m", "pytest", "-q"]
        command += ["--color=no", f"--junitxml={report}", *tier.options, str(folder)]
        label = f"[{lane.name}] {tier.name}"
        code, output = run_watched(command, label, Path(scratch, "output.txt"))
        outcome = read_report(report) if report.exists() else Outcome()
    if code not in (0, 1) or (code == 1 and outcome.failed == 0):
        outcome += Outcome(failed=1)  # pytest itself broke down, or collected nothing
    return outcome, output


def run_watched(command: Sequence[str], label: str, words: Path) -> tuple[int, str]:
    """Run to the end with the output in `words`, telling now and then how far it has come."""
    started = time.monotonic()
    with (
        words.open("w") as output,
        subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        while True:
            try:
                code = process.wait(NOTICE_EVERY_S)
            except subprocess.TimeoutExpired:
                dots = re.findall(r"^[.FEsxX]+", words.read_text(errors="replace"), re.MULTILINE)
                done = sum(map(len, dots))
                say(f"{label}: {done} tests after {time.monotonic() - started:.0f} s")
            else:
                return code, words.read_text(errors="replace")


def read_report(report: Path) -> Outcome:
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = Outcome()
    for suite in suites:
        tests, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        times = [(float(case.attrib["time"]), name_of(case)) for case in suite.iter("testcase")]
        total += Outcome(max(tests - failed - skipped, 0), failed, skipped, times)
    return total


def name_of(case: ElementTree.Element) -> str:
    return f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"


def summarise(lanes: Sequence[Lane], took: float) -> int:
    total = Outcome()
    print()
    for lane in lanes:
        lane_took = sum(seconds for _, _, seconds in lane.results)
        print(f"lane {lane.name:<12} {lane_took:8.1f} s")
        for tier, outcome, seconds in lane.results:
            total += outcome
            print(f"  tier {tier.name:<10} {seconds:8.1f} s   {outcome}")
            for test_took, name in outcome.slowest:
                print(f"{'':>16} {test_took:8.1f} s   {name}")
    if total.skipped:
        print("a skipped test counts against the run")
    print(f"all lanes together {took:.1f} s")
    print(total)
    return 0 if all(outcome.is_good for lane in lanes for _, outcome, _ in lane.results) else 1


def say(text: str) -> None:
    with _printing:
        print(text, flush=True)


if __name__ == "__main__":
    main()

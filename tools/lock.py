"""Write the lock files under requirements/: exact versions with hashes, one file per stage.

Run by `make lock`, after a change of dependencies in pyproject.toml or to take newer releases.
Only pip is asked, so the lock follows whatever index and certificates pip is set up for, and no
address is ever written down.

Two steps. First everything is resolved together, so that stages which share a package agree on its
version; each stage then keeps what it needs of that. Resolving runs on the oldest Python we
support, whose needs include those of later ones. Second, the wheel of each pinned version is looked
up for every Python and platform we support, and all their hashes are listed: pip picks the one that
fits, and refuses a file that is none of them.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "requirements"
# The base stage also installs the project itself, so it needs what builds it; and a known pip, so
# that later stages do not depend on how old the machine's own is.
BUILD_TOOLS = ("editables", "pip")
STAGES: Mapping[str, Sequence[str]] = {
    "base": (),
    "dev": ("dev",),
    "spark": ("demo", "pipelines"),
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
PLATFORMS: Mapping[str, Sequence[str]] = {
    "linux x86_64": [f"manylinux_{v}_x86_64" for v in GLIBC] + ["manylinux2014_x86_64"],
    "linux aarch64": [f"manylinux_{v}_aarch64" for v in GLIBC] + ["manylinux2014_aarch64"],
    "macos arm64": [f"macosx_{v}_0_arm64" for v in (14, 13, 12, 11)],
}
Report = dict[str, Any]


@dataclass(frozen=True)
class Pin:
    """One package at one version, with the hash of every file that may be installed for it."""

    name: str
    version: str
    hashes: frozenset[str]

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    def lines(self) -> str:
        options = "".join(f" \\\n    --hash={value}" for value in sorted(self.hashes))
        return f"{self.requirement}{options}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="keep the versions locked at present")
    keep = parser.parse_args().keep
    if sys.version_info[:2] != (3, 11):
        sys.exit("lock.py: run it with Python 3.11, the oldest version the project supports")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {stage: stage_requirements(project, extras) for stage, extras in STAGES.items()}
    print("resolving all stages together", flush=True)
    kept = locked_requirements() if keep else []
    everything = resolve([need for needs in wanted.values() for need in needs], constraints=kept)
    versions = [pin.requirement for pin in everything.values()]
    members = {}
    for stage, needs in wanted.items():
        members[stage] = resolve(needs, constraints=versions).keys()
        print(f"{stage}: {len(members[stage])} packages", flush=True)
    hashes = collect_hashes(everything.values())
    base = members["base"]
    for stage, names in members.items():
        own = names if stage == "base" else names - base
        pins = [Pin(n, everything[n].version, frozenset(hashes[n])) for n in sorted(own)]
        write_lock(stage, pins)


def stage_requirements(project: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    """What a stage asks for by name. Every stage includes the base it is installed on."""
    needs = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    needs += BUILD_TOOLS
    for extra in extras:
        needs += expand_extra(project, extra)
    return needs


def expand_extra(project: Mapping[str, Any], extra: str) -> list[str]:
    """The requirements of one extra, with extras of our own that it names unfolded."""
    needs: list[str] = []
    for need in project["project"]["optional-dependencies"][extra]:
        own = re.fullmatch(r"topics\[([\w-]+)\]", need)
        needs += expand_extra(project, own[1]) if own else [need]
    return needs


def locked_requirements() -> list[str]:
    pinned = re.compile(r"^([\w.-]+==[\w.!+-]+)", re.MULTILINE)
    return [
        found for file in sorted(OUTPUT.glob("*.txt")) for found in pinned.findall(file.read_text())
    ]


def resolve(needs: Sequence[str], *, constraints: Sequence[str]) -> dict[str, Pin]:
    """Ask pip which versions satisfy `needs`, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder, "constraints.txt")
        limits.write_text("\n".join(constraints))
        report = ask_pip(["--constraint", str(limits), *needs])
    if isinstance(report, str):
        sys.exit(f"lock.py: pip cannot resolve the dependencies\n{report}")
    return {pin.name: pin for pin in map(read_pin, report["install"])}


def collect_hashes(pins: Iterable[Pin]) -> dict[str, set[str]]:
    """The hashes of the files that each supported Python and platform would install."""
    hashes: dict[str, set[str]] = defaultdict(set)
    for pin in pins:
        hashes[pin.name] |= pin.hashes
    for python in PYTHONS:
        for platform, tags in PLATFORMS.items():
            print(f"hashes for Python {python} on {platform}", flush=True)
            for pin in find_wheels([p.requirement for p in pins], python=python, tags=tags):
                hashes[pin.name] |= pin.hashes
    return hashes


def find_wheels(needs: Sequence[str], *, python: str, tags: Sequence[str]) -> list[Pin]:
    """Wheels of exactly these versions for one target; packages without one there are left out."""
    target = ["--target", "unused", "--only-binary", ":all:", "--no-deps"]
    target += ["--python-version", python, "--implementation", "cp"]
    for tag in tags:
        target += ["--platform", tag]
    remaining = list(needs)
    while remaining:
        report = ask_pip([*target, *remaining])
        if not isinstance(report, str):
            return [read_pin(item) for item in report["install"]]
        missing = re.search(r"No matching distribution found for (\S+)", report)
        if missing is None or missing[1] not in remaining:
            sys.exit(f"lock.py: pip failed while looking up hashes\n{report}")
        remaining.remove(missing[1])
    return []


def ask_pip(arguments: Sequence[str]) -> Report | str:
    """pip's own account of what it would install, or its error text."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--report", "-", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr
    report: Report = json.loads(done.stdout)
    return report


def read_pin(item: Mapping[str, Any]) -> Pin:
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    archive = item["download_info"]["archive_info"]
    return Pin(
        name, item["metadata"]["version"], frozenset([f"sha256:{archive['hashes']['sha256']}"])
    )


def write_lock(stage: str, pins: Sequence[Pin]) -> None:
    head = f"# The {stage} stage, pinned. Written by tools/lock.py (make lock); do not edit.\n"
    if stage != "base":
        head += "# Holds only what the base stage does not.\n-r base.txt\n"
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / f"{stage}.txt").write_text(head + "".join(pin.lines() for pin in pins))


if __name__ == "__main__":
    main()

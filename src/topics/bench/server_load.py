"""Load from a compiled program: `h2load` of Debian's package `nghttp2-client`.

It speaks HTTP/1.1 and cleartext HTTP/2, sends one body over and over, and writes down how long
each request took. One thread of it is enough: see the row `ceiling`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topics.bench.measure import percentile
from topics.bench.server_process import HEADERS, ServingChild

PACKAGE = "nghttp2-client"
LIMIT_S = 900


@dataclass(frozen=True)
class LoadPlan:
    """What to send: a body to a path, so often, over so many connections."""

    path: str
    body: bytes
    requests: int
    connections: int = 1
    h2: bool = False

    @property
    def version(self) -> str:
        return "h2c" if self.h2 else "HTTP/1.1"


@dataclass(frozen=True)
class LoadOutcome:
    """What came of it. Times of single requests are microseconds, sorted."""

    seconds: float
    cpu_s: float
    times_us: Sequence[int]

    @property
    def requests(self) -> int:
        return len(self.times_us)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU of one request."""
        return self.cpu_s / self.requests * 1e6

    def percentile_us(self, share: float) -> float:
        return percentile(self.times_us, share)


def find_h2load() -> str:
    """Where h2load is; on Debian it is installed when we may."""
    found = _installed()
    if found is not None:
        return found
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise RuntimeError(f"the load comes from h2load: install Debian's package {PACKAGE}")
    subprocess.run(
        [apt, "install", "-y", "-qq", "--no-install-recommends", PACKAGE],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    return _installed() or "h2load"


def _installed() -> str | None:
    return shutil.which("h2load") or shutil.which("h2load", path=os.defpath)


def send(child: ServingChild, plan: LoadPlan, scratch: Path) -> LoadOutcome:
    """Send it all and wait for every answer; each has to be a success."""
    body, log = scratch / "body.json", scratch / "requests.log"
    body.write_bytes(plan.body)
    log.unlink(missing_ok=True)
    command = [find_h2load(), f"--log-file={log}", "-d", str(body)]
    command += ["-n", str(plan.requests), "-c", str(plan.connections), "-m", "1"]
    command += [part for pair in HEADERS.items() for part in ("-H", ": ".join(pair))]
    command += [] if plan.h2 else ["--h1"]
    before = child.cpu_s()
    done = subprocess.run(
        [*command, child.url + plan.path],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    spent = child.cpu_s() - before
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    if len(rows) < plan.requests or any(status[0] != "2" for _, status, _ in rows):
        raise RuntimeError(f"not every request to {plan.path} succeeded:\n{done.stdout}")
    began = min(int(start) for start, _, _ in rows)
    ended = max(int(start) + int(took) for start, _, took in rows)
    return LoadOutcome((ended - began) / 1e6, spent, sorted(int(took) for _, _, took in rows))

"""Write the blocking client from the asyncio client, where the two are alike.

Run by `make fmt`. `--check`, run by `make check`, fails if a file is not what this makes of its
source. Transports, producers and workers are written by hand: they differ in more than `await`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "topics" / "client"


@dataclass(frozen=True)
class Twin:
    """A file of the asyncio client and what becomes of it."""

    source: str
    target: str
    header: str
    changes: tuple[tuple[str, str], ...] = ()


TWINS = (
    Twin(
        "aio.py",
        "sync.py",
        '''"""`RemoteLog`: what `topics.open("http://...")` returns.

The calls, results and errors of a log in this process (`topics.embedded.Log`), over HTTP. Each
method says what to do through `_calls`; this shell only sends it. Safe for threads, and for
forked children and pickles, which connect anew.
"""''',
    ),
    Twin(
        "_aio_stream.py",
        "_sync_stream.py",
        '"""Live reads of the blocking client: event streams and WebSockets that reconnect."""',
    ),
    Twin(
        "aio_consumer.py",
        "consumer.py",
        '''"""A reader whose position is kept in the log under a name.

    consumer = log.consumer("orders", name="billing")
    for item in consumer:
        match item:
            case Record(): bill(item.data)
            case Tombstone(): alarm(item)
        consumer.commit()

What was handed out but not committed comes again after a restart: at least once. Commit as rarely
as you can afford to do work twice.
"""''',
        (
            (
                "from topics.client.aio import AsyncRemoteLog",
                "from topics.client._protocols import AnyLog",
            ),
            ("AsyncRemoteLog", "AnyLog"),
            ("For one task", "For one thread"),
            ("    async def where(self) -> int:", "    @property\n    def position(self) -> int:"),
            ("await self.where()", "self.position"),
        ),
    ),
)

WORDS = (
    (r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]"),
    (r"Awaitable\[([^\[\]]*)\]", r"\1"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baclosing\b", "closing"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bimport asyncio\b", "import time"),
    (r"asyncio\.get_running_loop\(\)\.time\(\)", "time.monotonic()"),
    (r"\bAwaitingLog\b", "BlockingLog"),
    (r"\b_awaiting\b", "_blocking"),
    (r"\b_aio_stream\b", "_sync_stream"),
    (r"\baio_http\b", "sync_http"),
    (r"\baio_(consumer|producer|worker)\b", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
)


def blocking(twin: Twin) -> str:
    """The source without its waits."""
    text = (CLIENT / twin.source).read_text()
    text = re.sub(r'\A""".*?"""', lambda _: twin.header, text, count=1, flags=re.DOTALL)
    for old, new in twin.changes:
        assert old in text, f"{twin.source} has no {old!r}"
        text = text.replace(old, new)
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text)
    note = f"\n\n# Made from `{twin.source}` by tools/make_sync.py: change that, then `make fmt`.\n"
    end = len(twin.header)
    return _tidy(text[:end] + note + text[end:])


def _tidy(text: str) -> str:
    """Formatted, imports sorted, without those that nothing uses any more."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(CLIENT / "sync.py"), "-"]
    for options in (
        ["check", "--fix-only", "--unsafe-fixes", "--quiet", "--select", "I,F401,UP028"],
        ["format"],
    ):
        done = subprocess.run(
            [*ruff, *options, *name], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the files, or say which are not as they would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args(arguments).check
    stale = []
    for twin in TWINS:
        target, text = CLIENT / twin.target, blocking(twin)
        if target.read_text() == text:
            continue
        stale.append(twin.target)
        if not check:
            target.write_text(text)
    if stale and check:
        print(f"{', '.join(stale)}: not made from the asyncio client; run `make fmt`")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

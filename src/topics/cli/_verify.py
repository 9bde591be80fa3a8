"""`topics verify`: is everything in a directory as it was written?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from topics.cli._output import safe
from topics.engine.recovery.read_only import steadily
from topics.engine.recovery.verification import verify
from topics.storage.findings import Report, files_below
from topics.storage.fs import Fs, RealFs


def run(directory: str, *, cold_dir: str | None, as_json: bool) -> int:
    """Check and tell; 1 when anything is damaged."""
    fs = RealFs()

    def attempt() -> Report:
        with _progress(_size(fs, directory) + (_size(fs, cold_dir) if cold_dir else 0)) as advance:
            report = Report(fs, advance)
            verify(report, directory, cold_dir)
            return report

    report = steadily(directory, attempt)
    if as_json:
        print(json.dumps(_as_facts(report), indent=2))
    else:
        _print(report)
    return 1 if report.damage else 0


def _size(fs: Fs, directory: str) -> int:
    """The bytes to check, for the progress bar; a missing directory is left to the check itself."""
    total = 0
    with suppress(OSError):
        for path in files_below(fs, directory):
            with suppress(FileNotFoundError):
                total += fs.size(path)
    return total


def _as_facts(report: Report) -> dict[str, object]:
    return {
        "ok": not report.damage,
        "files": report.files,
        "bytes": report.bytes,
        "log_frames": report.frames,
        "segment_records": report.records,
        "damage": [msgspec.to_builtins(finding) for finding in report.damage],
        "notes": report.notes,
    }


def _print(report: Report) -> None:
    for note in report.notes:
        print(f"note: {safe(str(note))}")
    for finding in report.damage:
        print(f"damaged: {safe(str(finding))}")
    verdict = f"{len(report.damage)} damaged" if report.damage else "all sound"
    print(
        f"{report.files} files, {report.bytes} bytes, {report.frames} log frames, "
        f"{report.records} segment records: {verdict}"
    )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the error stream of a terminal; nothing without a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("verify", total=total)
        yield lambda size: bar.advance(task, size)

"""`topics backup` and `topics restore` at work: progress, and what is told at the end."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from topics.cli._output import safe
from topics.engine.backup import keeping
from topics.engine.backup.destination import BackupRefused, Destination
from topics.engine.backup.restoring import (
    Restore,
    Restored,
    RestorePlan,
    RestoreTarget,
    covered,
    moment,
)
from topics.engine.backup.taking import Backup, BackupTaken
from topics.engine.backup.taking import CopyProgress as Done
from topics.engine.clock import SystemClock
from topics.engine.recovery.verification import verify as verify_directory
from topics.errors import ObjectStoreFailed
from topics.storage import crashpoints, layout
from topics.storage.erasures import BadLedger, Begun, ErasureLedger
from topics.storage.findings import Report
from topics.storage.fs import RealFs
from topics.storage.objects.opening import is_remote, open_objects

STREAM_S = 0.5
POINT_EVERY_MS = 300_000
SHORTEST_EVERY_MS = 1000
LONGEST_PAUSE_S = 60.0


def run(
    directory: str,
    destination: str,
    *,
    cold_dir: str | None,
    every_ms: int | None,
    stream: bool,
    keep_ms: int | None,
    as_json: bool,
) -> int:
    """One backup, or one after the other until the process is stopped."""
    crashpoints.install_from_env(os.environ)
    _refuse_inside(destination, (directory, cold_dir))
    if every_ms is not None and every_ms < SHORTEST_EVERY_MS:
        raise BackupRefused("--every takes 1s or longer; --stream copies the log as it is written")
    _be_quiet()
    clock = SystemClock()
    dest = Destination(open_objects(destination), clock)
    with _progress("copying", shown=not stream) as tell:
        backup = Backup(RealFs(), directory, dest, cold_dir=cold_dir, clock=clock, tell=tell)
        backup.begin()
        taken = backup.run()
    _tell_taken(taken, as_json=as_json)
    _tell_erasures(directory)
    damaged = bool(taken.damaged)
    try:
        _prune(dest, keep_ms)
        if stream or every_ms is not None:
            _go_on(backup, dest, every_ms, stream=stream, keep_ms=keep_ms, as_json=as_json)
    finally:
        with suppress(BackupRefused, ObjectStoreFailed):
            backup.end()
    return 1 if damaged else 0


def _go_on(
    backup: Backup,
    dest: Destination,
    every_ms: int | None,
    *,
    stream: bool,
    keep_ms: int | None,
    as_json: bool,
) -> None:
    """Until an interrupt. An outage of the destination is waited out: the log is not lost by it."""
    point_s = (every_ms if every_ms is not None else POINT_EVERY_MS) / 1000
    pause_s = STREAM_S if stream else point_s
    point_at = time.monotonic() + point_s
    failed = 0
    while True:
        time.sleep(min(LONGEST_PAUSE_S, pause_s * 2**failed) if failed else pause_s)
        try:
            if time.monotonic() >= point_at or not stream:
                _tell_taken(backup.run(), as_json=as_json)
                _prune(dest, keep_ms)
                point_at = time.monotonic() + point_s
            else:
                backup.ship()
            failed = 0
        except ObjectStoreFailed as error:
            if not error.retryable:
                raise
            failed = min(failed + 1, 8)
            click.echo(f"{safe(str(error))}; going on with the next try", err=True)


def _prune(dest: Destination, keep_ms: int | None) -> None:
    if keep_ms is not None:
        keeping.prune(dest, keep_from_ms=max(0, SystemClock().now_ms() - keep_ms))


def ls(destination: str, *, as_json: bool) -> int:
    found = keeping.contents(_source(destination))
    if as_json:
        _print_json(found)
        return 0
    print(f"{found.url}: {found.objects} objects, {found.bytes} bytes")
    print(f"covers {covered(found.spans)}")
    for point in found.points:
        print(f"point {point.number} at {moment(point.ts)}: {point.records} records")
    if found.erasures:
        print(f"{found.erasures} receipts of erasures")
    return 0


def verify(destination: str, *, as_json: bool) -> int:
    with _progress("verifying") as tell:
        found = keeping.verify(_source(destination), tell)
    if as_json:
        _print_json(found)
    else:
        for each in found.damaged:
            print(f"damaged: {safe(each)}")
        verdict = f"{len(found.damaged)} damaged" if found.damaged else "all sound"
        print(f"{found.objects} objects, {found.bytes} bytes: {verdict}")
    return 1 if found.damaged else 0


def prune(destination: str, *, keep_ms: int | None, yes: bool, as_json: bool) -> int:
    clock = SystemClock()
    dest = _source(destination)
    root = dest.require()
    from_ms = 0 if keep_ms is None else max(0, clock.now_ms() - keep_ms)
    if keep_ms is not None and not yes:
        click.confirm(
            f"Remove from {safe(dest.url)} what only moments before {moment(from_ms)} need?",
            abort=True,
            err=True,
        )
    dest.claim(store_id=root.store_id, lineage=root.lineage, format_file=root.format_file)
    found = keeping.prune(dest, keep_from_ms=from_ms)
    assert dest.root is not None
    dest.publish(dest.root, is_done=True)
    if as_json:
        _print_json(found)
    else:
        print(f"removed {found.points} points, {found.objects} objects, {found.bytes} bytes")
    return 0


def restore(
    source: str,
    directory: str | None,
    *,
    target: tuple[int | None, str | None, int | None],
    topics: tuple[str, ...],
    ledger: str | None,
    dry_run: bool,
    check: bool,
    as_json: bool,
) -> int:
    fs, clock = RealFs(), SystemClock()
    receipts, under_way = _ledger_of(ledger)
    at_ms, topic, seq = target

    def planned(where: str, tell: Callable[[Done], None]) -> Restore:
        return Restore(
            _source(source),
            fs,
            os.path.abspath(where),
            RestoreTarget(at_ms=at_ms, topic=topic, seq=seq, topics=topics),
            clock=clock,
            more_receipts=receipts,
            under_way=under_way,
            tell=tell,
        )

    plan = planned(directory or "scratch", _silent).plan()
    if not as_json:
        _print_plan(plan)
    if dry_run:
        if as_json:
            _print_json(plan)
        return 1 if plan.missing else 0
    with tempfile.TemporaryDirectory() as scratch, _progress("restoring") as tell:
        where = f"{scratch}/restored" if check or directory is None else directory
        restored = planned(where, tell).run()
        report = Report(fs, lambda size: None)
        if check:
            verify_directory(report, restored.directory, None)
    if as_json:
        facts = msgspec.to_builtins(restored) | {"plan": msgspec.to_builtins(plan)}
        if check:
            facts["damage"] = [msgspec.to_builtins(each) for each in report.damage]
        print(json.dumps(facts, indent=2))
    else:
        _print_restored(restored, report if check else None)
    return 1 if report.damage else 0


def _ledger_of(directory: str | None) -> tuple[list[tuple[int, bytes]], list[Begun]]:
    """The receipts of a data directory, and the notes of erasures that are under way there."""
    if directory is None:
        return [], []
    if not os.path.exists(f"{directory}/{layout.FORMAT}"):
        raise BackupRefused(f"--ledger takes a data directory, and {directory!r} is none")
    ledger = ErasureLedger(RealFs(), directory)
    try:
        return ledger.files(), ledger.begun()
    except BadLedger as error:
        raise BackupRefused(f"the ledger in {directory}: {error}") from error


def _refuse_inside(destination: str, directories: Sequence[str | None]) -> None:
    """A copy inside the log would be lost with it, and an erasure would not reach it."""
    if is_remote(destination):
        return
    where = os.path.realpath(destination.removeprefix("file://"))
    for directory in filter(None, directories):
        if os.path.commonpath([where, os.path.realpath(directory)]) == os.path.realpath(directory):
            raise BackupRefused(
                f"{destination} lies in {directory}, which is what the backup is to protect; "
                "choose a directory elsewhere, best on another disk"
            )


def _tell_erasures(directory: str) -> None:
    """Say which erasures a restore of this backup does not know of yet."""
    for number in ErasureLedger(RealFs(), directory).begun_numbers():
        click.echo(
            f"erasure {number} is under way: until it has ended and a backup has its receipt, a "
            "restore can bring back what it erases",
            err=True,
        )


def _print_plan(plan: RestorePlan) -> None:
    print(f"restores {safe(plan.source)} as of {moment(plan.at_ms)}")
    print(f"from the point of {moment(plan.point_ms)}: {plan.objects} objects, {plan.bytes} bytes")
    print(f"the backup covers {covered(plan.spans)}")
    if plan.erasures:
        print(f"{plan.erasures} erasures are applied: what they erased does not come back")
    for name in plan.missing:
        print(f"missing: {safe(name)}")


def _print_restored(restored: Restored, report: Report | None) -> None:
    where = "a scratch directory" if report is not None else safe(restored.directory)
    print(f"restored {restored.topics} topics, {restored.records} records to {where}")
    for name, (first, last) in sorted(restored.gaps.items()):
        print(
            f"{safe(name)}: the seqs {first} to {last} came later; readers are told they are lost"
        )
    if restored.new_epoch:
        print("every topic began a new epoch: more seqs may have been given out than were copied")
    if restored.erased:
        print(f"{restored.erased} erased records were left out")
    if report is not None:
        for finding in report.damage:
            print(f"damaged: {safe(str(finding))}")
        print("checked: " + (f"{len(report.damage)} damaged" if report.damage else "all sound"))


def _tell_taken(taken: BackupTaken, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(taken)), flush=True)
        return
    for each in taken.damaged:
        print(f"damaged: {safe(each)}")
    if taken.has_hole:
        print("the log has a hole since the backup before; restores reach from this point on")
    print(
        f"{safe(taken.url)}: covered to {moment(taken.covered_to_ms)}, {taken.put_bytes} bytes "
        f"copied, {taken.segments} segments",
        flush=True,
    )


def _source(url: str) -> Destination:
    return Destination(open_objects(url), SystemClock())


def _print_json(value: msgspec.Struct) -> None:
    facts: Any = msgspec.to_builtins(value)
    print(json.dumps(facts, indent=2))


def _silent(done: Done) -> None:
    pass


def _be_quiet() -> None:
    """A backup gives way to everything else on the machine."""
    with suppress(OSError):
        os.nice(10)


@contextmanager
def _progress(what: str, *, shown: bool = True) -> Iterator[Callable[[Done], None]]:
    """A bar on a terminal's error stream; nothing where nobody watches."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (shown and console.is_terminal),
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.update(task, completed=done.done_bytes, total=done.total_bytes)

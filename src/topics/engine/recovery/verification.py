"""The order in which a directory is verified, and what must hold across its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from topics.core.topic import Topic
from topics.engine.reads.history import segments_of
from topics.engine.recovery.directory import look_into
from topics.engine.recovery.read_only import find
from topics.engine.recovery.recover import Found
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.checksum import h64
from topics.storage.findings import Account, Report
from topics.storage.fs import read_file
from topics.storage.handles import Handles
from topics.storage.segments.checking import SegmentJob, segment_jobs
from topics.storage.segments.segment import ActiveSegment, AnySegment, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.tiering import check_cold_dir
from topics.storage.snapshots.chain import Chain, list_snapshots, read_chain
from topics.storage.snapshots.file import BadSnapshot, Snapshot, read_snapshot
from topics.storage.snapshots.lines import TopicLine
from topics.storage.stages import BadStage, list_stages, read_stage
from topics.storage.wal.checking import check_log

RunJobs = Callable[[Report, Sequence[SegmentJob]], None]


def one_by_one(report: Report, jobs: Sequence[SegmentJob]) -> None:
    """Check segments here, in order."""
    for job in jobs:
        job.run(report)


def verify(
    report: Report, path: str, cold_dir: str | None, *, run_jobs: RunJobs = one_by_one
) -> None:
    """Fill the report; `RefusedToOpen` for a directory that is no store of this version.

    Segments are nearly all of a large store; `run_jobs` may have others check them.
    """
    if not _format_is_sound(report, path):
        return
    entered = look_into(report.fs, path)
    assert entered.format is not None
    store_id = entered.format.id_bytes
    newest = _check_snapshots(report, path, store_id)
    check_log(report, path, store_id)
    if cold_dir is not None:
        _check_cold_marker(report, cold_dir, store_id)
    run_jobs(report, _check_state(report, path, cold_dir, newest))
    _check_stages(report, path)


def _format_is_sound(report: Report, path: str) -> bool:
    file = f"{path}/{layout.FORMAT}"
    if not report.fs.exists(file):
        return True  # whether that is damage or no store at all, `look_into` says
    line, _, digest = read_file(report.fs, file).partition(b"\n")
    if digest != b"%016x" % h64(line):
        report.wrong(file, "the checksum does not match; restore it from a backup", offset=0)
        return False
    report.done_with(file)
    return True


def _check_snapshots(report: Report, path: str, store_id: bytes) -> Snapshot | None:
    """Check every file, and that the newest two snapshots are whole; the newest one that is."""
    numbers = sorted(list_snapshots(report.fs, path), reverse=True)
    sound: set[int] = set()
    for number in numbers:
        file = layout.snapshot_path(path, number)
        try:
            read_snapshot(report.fs, file, store_id)
            sound.add(number)
        except BadSnapshot as error:
            report.wrong(file, str(error), offset=0)
        report.done_with(file)
    newest: Chain | None = None
    others = numbers
    for _ in range(2):
        number = max((n for n in others if n in sound), default=0)
        if not number:
            break
        try:
            chain = read_chain(report.fs, path, number, store_id, present=numbers)
        except BadSnapshot as error:
            report.wrong(layout.snapshot_path(path, number), str(error), offset=0)
            others = [n for n in others if n != number]
        else:
            newest = newest or chain
            others = [n for n in others if n not in chain.numbers]
    return None if newest is None else newest.snapshot


def _check_cold_marker(report: Report, cold_dir: str, store_id: bytes) -> None:
    try:
        check_cold_dir(report.fs, cold_dir, store_id)
    except RefusedToOpen as refusal:
        report.refused(refusal)
    else:
        report.done_with(f"{cold_dir}/{layout.COLD_MARKER}")


def _check_state(
    report: Report, path: str, cold_dir: str | None, newest: Snapshot | None
) -> list[SegmentJob]:
    """Replay everything as an open would; returns the segments that the result rests on."""
    jobs: list[SegmentJob] = []
    try:
        found = find(report.fs, path, cold_dir)
    except RefusedToOpen as refusal:
        report.refused(refusal)
        store = SegmentStore(report.fs, Handles(report.fs), path, cold_dir)
        for line in newest.topics if newest is not None else ():
            jobs += segment_jobs(store, report.fs, line.name, line.id, _listed(line))
        return jobs
    try:
        for topic in found.catalog:
            jobs += segment_jobs(found.store, report.fs, topic.name, topic.id, _parts(topic))
            _check_ledger(report, found, topic)
    finally:
        found.sources.close()
        found.handles.close()
    return jobs


def _listed(line: TopicLine) -> list[AnySegment]:
    segments: list[AnySegment] = [*line.segs]
    if line.active is not None:
        first, last, data_len, idx_len = line.active
        segments.append(ActiveSegment(first, last, data_len, idx_len, 0, 0, 0))
    return segments


def _parts(topic: Topic) -> list[AnySegment]:
    history = segments_of(topic)
    return [part for part in history.parts if isinstance(part, Segment | ActiveSegment)]


def _check_ledger(report: Report, found: Found, topic: Topic) -> None:
    """Every seq up to the head went somewhere, and the live ones are as many as there should."""
    ledger = msgspec.structs.asdict(topic.ledger)
    report.accounts.append(
        Account(topic=topic.name, head_seq=topic.head, live=topic.count, **ledger)
    )
    accounted = topic.count + topic.ledger.gone
    if accounted != topic.head:
        what = f"the ledger accounts for {accounted} seqs of {topic.head}"
        report.wrong(found.path, what, topic=topic.name, seq=topic.head)
    live = topic.weigh(topic.earliest, topic.head)
    if live != (topic.count, topic.bytes):
        what = (
            f"{live[0]} live records of {live[1]} bytes are there, {topic.count} of "
            f"{topic.bytes} bytes should be"
        )
        report.wrong(found.path, what, topic=topic.name, seq=topic.earliest)


def _check_stages(report: Report, path: str) -> None:
    listing = list_stages(report.fs, path)
    for file in listing.damaged:
        report.wrong(file, "the header of this stage is damaged", offset=0)
        report.done_with(file)
    for info in listing.stages:
        file = info.key.path(path)
        try:
            read_stage(report.fs, file, info.key)
        except BadStage as error:
            report.wrong(file, str(error))
        report.done_with(file)

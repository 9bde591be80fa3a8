"""Checking log files: every frame, also those that no recovery would read any more."""

from __future__ import annotations

from itertools import pairwise

from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.findings import Report
from topics.storage.frames.buffer import CleanEnd, Unreadable, walk
from topics.storage.frames.header import ForeignFrame
from topics.storage.fs import read_file
from topics.storage.identity import store_mark
from topics.storage.wal.collect import Collector
from topics.storage.wal.files import HEADER_SIZE
from topics.storage.wal.groups import Group, LogFile, discover, read_header
from topics.storage.wal.salvage import proven_behind

CHUNK_FRAMES = 32_768


def check_log(report: Report, data_dir: str, store_id: bytes) -> None:
    """All groups, whether the configured layout uses them or not."""
    for group in discover(report.fs, f"{data_dir}/{layout.WAL}"):
        _check_current(report, group)
        found = [_check_file(report, group, lfn, store_id) for lfn in group.first_lfns]
        for before, after in pairwise(found):
            if before is not None and after is not None:
                _check_chain(report, before, after)


def _check_current(report: Report, group: Group) -> None:
    path = f"{group.directory}/{layout.CURRENT}"
    if not report.fs.exists(path):
        report.notes.append(f"{path} is missing; the next open makes it again")
        return
    if group.current is None:
        report.wrong(path, "cannot be read; the next open makes it again", offset=0)
    elif group.current.first_lfn not in group.first_lfns:
        report.wrong(group.path(group.current.first_lfn), "this log file is gone")
    report.done_with(path)


def _check_file(report: Report, group: Group, first_lfn: int, store_id: bytes) -> LogFile | None:
    try:
        log_file = read_header(report.fs, group, first_lfn, store_id=store_id)
    except RefusedToOpen as refusal:
        report.refused(refusal)
        report.done_with(group.path(first_lfn))
        return None
    buf = read_file(report.fs, log_file.path)
    end = _follow(report, log_file, buf, store_mark(store_id))
    if end is not None:
        is_newest = first_lfn == group.first_lfns[-1]
        _judge(report, log_file, buf, end, is_newest=is_newest, mark=store_mark(store_id))
    report.done_with(log_file.path)
    return log_file


def _follow(
    report: Report, log_file: LogFile, buf: bytes, mark: int
) -> CleanEnd | Unreadable | None:
    """Read every frame; what lies behind the last one, None where a frame makes no sense."""
    offset = HEADER_SIZE
    while True:
        walked = walk(buf, offset, len(buf), max_frames=CHUNK_FRAMES)
        try:
            Collector(mark).add(buf, walked.offsets, 1)
        except ForeignFrame as error:
            report.wrong(log_file.path, f"not understood: {error}", offset=error.offset)
            return None
        report.frames += len(walked.offsets)
        offset = walked.stop
        if walked.end is not None:
            return walked.end


def _judge(
    report: Report,
    log_file: LogFile,
    buf: bytes,
    end: CleanEnd | Unreadable,
    *,
    is_newest: bool,
    mark: int,
) -> None:
    if isinstance(end, CleanEnd) and (is_newest or end.offset == len(buf)):
        return
    file_lfn = log_file.header.first_lfn
    proven = proven_behind(buf, end.offset, file_lfn=file_lfn, store_mark=mark)
    if is_newest and proven <= end.offset:
        torn = len(buf.rstrip(b"\0")) - end.offset
        report.notes.append(
            f"{log_file.path} ends in {torn} torn bytes at {end.offset}: a write that a crash "
            "cut off, or one that is under way"
        )
        return
    why = end.why if isinstance(end, Unreadable) else "zeros where frames were"
    report.wrong(log_file.path, f"damaged ({why}) although it was durable", offset=end.offset)


def _check_chain(report: Report, before: LogFile, after: LogFile) -> None:
    header = after.header
    if header.prev_first_lfn != before.header.first_lfn:
        if header.prev_first_lfn:
            name = layout.wal_name(header.prev_first_lfn)
            report.wrong(after.path, f"the file before it, {name}, is gone", offset=0)
    elif header.prev_len != before.size:
        report.wrong(
            before.path,
            f"has {before.size} bytes instead of {header.prev_len}",
            offset=min(before.size, header.prev_len),
        )

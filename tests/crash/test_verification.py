"""`topics verify` notices what is damaged, and says where."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.crash.stores import DATA_DIR, closed_store

from topics.engine.recovery.verification import verify
from topics.storage import layout
from topics.storage.findings import Report
from topics.storage.frames.buffer import Frame, decode_at
from topics.storage.stages import StagedRow, StageKey, write_stage
from topics.storage.wal.files import BEACON_SIZE
from topics.testing import SimDisk

EVERY = 19
STAGE = StageKey("app", 7, 0, 1)


@pytest.fixture(scope="module")
def disk() -> SimDisk:
    disk = closed_store()
    row = StagedRow("fsync", "n", "t", b'{"a":1}')
    write_stage(disk, DATA_DIR, STAGE, [row, row], now_ms=1)
    disk.settle()
    return disk


def verified(disk: SimDisk) -> Report:
    report = Report(disk)
    verify(report, DATA_DIR, None)
    return report


def outside_checksums(disk: SimDisk) -> set[tuple[str, int]]:
    """Bytes that no checksum covers: delete bytes, and the last proof of the log itself."""
    found: set[tuple[str, int]] = set()
    for path in disk.paths():
        data = disk.peek(path)
        if path.endswith(".data"):
            at = 0
            while at < len(data):
                frame = decode_at(data, at, len(data))
                assert isinstance(frame, Frame)
                found.add((path, frame.end))
                at = frame.end + 1
        elif path.endswith(".idx"):
            found.update((path, at) for at in range(17, len(data), 20))
        elif path.endswith(".log"):
            end = len(data.rstrip(b"\0"))
            found.update((path, at) for at in range(end - BEACON_SIZE, len(data)))
    return found


def checksummed(disk: SimDisk) -> Iterator[tuple[str, int]]:
    spared = outside_checksums(disk)
    for path in disk.paths():
        if not path.endswith(layout.LOCK):
            places = ((path, at) for at in range(len(disk.peek(path))))
            yield from (place for place in places if place not in spared)


def test_a_sound_directory_passes(disk: SimDisk) -> None:
    report = verified(disk)
    assert not report.damage
    assert not report.notes
    assert report.records
    assert report.frames
    checked = {path for path in disk.paths() if not path.endswith(layout.LOCK)}
    assert report.files == len(checked)


def test_every_flipped_bit_under_a_checksum_is_named_with_its_file(disk: SimDisk) -> None:
    for path, offset in list(checksummed(disk))[::EVERY]:
        disk.flip(path, offset, 1 << offset % 8)
        try:
            report = verified(disk)
            named = {finding.file for finding in report.damage}
            assert path in named, f"byte {offset} of {path}: {report.damage}"
        finally:
            disk.flip(path, offset, 1 << offset % 8)


def test_a_damaged_record_is_named_by_file_offset_topic_and_seq(disk: SimDisk) -> None:
    path = next(path for path in disk.paths() if path.endswith(".data"))
    data = disk.peek(path)
    first = decode_at(data, 0, len(data))
    assert isinstance(first, Frame)
    disk.flip(path, first.end + 1 + 40)
    try:
        (finding,) = verified(disk).damage
    finally:
        disk.flip(path, first.end + 1 + 40)
    assert (finding.file, finding.offset) == (path, first.end + 1)
    assert finding.topic == "memory"
    assert finding.seq is not None
    assert path in str(finding)
    assert f"seq {finding.seq}" in str(finding)

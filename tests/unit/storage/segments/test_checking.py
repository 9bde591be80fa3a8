"""Checking the files of a segment: whatever does not fit the records is named."""

import pytest
from tests.unit.storage.segments.builders import (
    COLD_DIR,
    DATA_DIR,
    TOPIC,
    make_store,
    records,
    write_active,
    write_sealed,
)

from topics.storage.findings import Report
from topics.storage.segments import tagfile
from topics.storage.segments.checking import segment_jobs
from topics.storage.segments.codec import DEAD, ENTRY_SIZE, Idx
from topics.storage.segments.segment import AnySegment
from topics.testing import SimDisk

STEM = f"{DATA_DIR}/topics/0000000A/seg-0000000000000001"
DATA, IDX, TAG = f"{STEM}.data", f"{STEM}.idx", f"{STEM}.tag"
TAGS = ["a", "b", None, "a"]
DELETE_BYTE = 17
"""Where in an entry the delete byte lies."""


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def segment(disk: SimDisk) -> AnySegment:
    return write_sealed(make_store(disk), records(1, 4, tags=TAGS))


def checked(disk: SimDisk, segment: AnySegment, *, cold: bool = False) -> Report:
    report = Report(disk)
    store = make_store(disk, cold=cold)
    for job in segment_jobs(store, disk, "t", TOPIC, [segment]):
        job.run(report)
    return report


def found(disk: SimDisk, segment: AnySegment) -> tuple[str, str]:
    """File and words of the one thing that is wrong."""
    (finding,) = checked(disk, segment).damage
    assert finding.topic == "t"
    return finding.file, finding.what


def test_a_sound_segment_is_counted_and_nothing_said(disk: SimDisk, segment: AnySegment) -> None:
    report = checked(disk, segment)
    assert (report.damage, report.notes) == ([], [])
    assert (report.files, report.records_of) == (3, {"t": 4})


def test_a_hole_is_no_record_and_nothing_is_missed(disk: SimDisk) -> None:
    report = checked(disk, write_sealed(make_store(disk), records(1, 4, dead=[2])))
    assert (report.damage, report.records) == ([], 3)


def test_an_active_segment_has_no_tag_file_yet(disk: SimDisk) -> None:
    report = checked(disk, write_active(make_store(disk), records(1, 4, tags=TAGS)))
    assert (report.damage, report.notes, report.files) == ([], [], 2)


def test_each_copy_in_each_tier_is_checked(disk: SimDisk, segment: AnySegment) -> None:
    cold = DATA.replace(DATA_DIR, COLD_DIR, 1)
    assert checked(disk, segment, cold=True).files == 3, "there is no copy in the cold tier"
    for path in (DATA, IDX, TAG):
        disk.put(path.replace(DATA_DIR, COLD_DIR, 1), disk.peek(path))
    disk.flip(cold, 60)
    report = checked(disk, segment, cold=True)
    assert report.files == 6
    assert [finding.file for finding in report.damage] == [cold]


def test_data_cut_short_names_the_cut_and_each_record_behind_it(
    disk: SimDisk, segment: AnySegment
) -> None:
    cut = segment.data_len - 1
    disk.put(DATA, disk.peek(DATA)[: cut - 1])
    report = checked(disk, segment)
    assert [(finding.file, finding.seq) for finding in report.damage] == [(DATA, None), (DATA, 4)]
    assert report.damage[0].offset == cut - 1
    assert report.records == 3


def test_bytes_behind_the_recorded_end_are_only_remarked_on(
    disk: SimDisk, segment: AnySegment
) -> None:
    disk.put(DATA, disk.peek(DATA) + b"x")
    report = checked(disk, segment)
    assert report.damage == []
    assert "longer than recorded" in report.notes[0]


def test_a_missing_index_is_reported_and_done_without(disk: SimDisk, segment: AnySegment) -> None:
    disk.unlink(IDX)
    assert found(disk, segment) == (IDX, "is missing; the next open rebuilds it")
    assert checked(disk, segment).records == 4


def test_an_index_of_another_length_is_reported(disk: SimDisk, segment: AnySegment) -> None:
    disk.put(IDX, disk.peek(IDX)[:-1])
    assert found(disk, segment) == (
        IDX,
        f"has {4 * ENTRY_SIZE - 1} bytes instead of {4 * ENTRY_SIZE}; the next open rebuilds it",
    )


def test_an_index_with_another_hash_is_reported(disk: SimDisk, segment: AnySegment) -> None:
    disk.flip(IDX, 8)
    path, what = found(disk, segment)
    assert path == IDX
    assert "hash" in what


def test_an_index_that_does_not_add_up_is_reported(disk: SimDisk) -> None:
    active = write_active(make_store(disk), records(1, 4))
    disk.flip(IDX, ENTRY_SIZE)
    path, what = found(disk, active)
    assert path == IDX
    assert "do not add up" in what


def test_an_index_that_contradicts_a_record_is_reported(disk: SimDisk) -> None:
    active = write_active(make_store(disk), records(1, 4, tags=TAGS))
    for at in range(ENTRY_SIZE, 2 * ENTRY_SIZE):
        disk.flip(IDX, at)
        whats = [finding.what for finding in checked(disk, active).damage]
        disk.flip(IDX, at)
        if whats == ["says something else of this record than the record itself"]:
            return
    pytest.fail("no byte of an entry contradicts its record alone")


def test_a_delete_that_only_the_index_knows_is_reported(disk: SimDisk, segment: AnySegment) -> None:
    disk.poke(IDX, ENTRY_SIZE + DELETE_BYTE, bytes([DEAD]))
    path, what = found(disk, segment)
    assert path == DATA
    assert what == "deleted by its index, live by its delete byte"
    idx = Idx(disk.peek(IDX))
    disk.poke(DATA, idx.offset(1) + idx.length(1), bytes([DEAD]))
    assert checked(disk, segment).damage == []


def test_a_missing_tag_file_is_only_remarked_on(disk: SimDisk, segment: AnySegment) -> None:
    disk.unlink(TAG)
    report = checked(disk, segment)
    assert report.damage == []
    assert report.notes == [f"{TAG} is missing; it can be had from the records"]


def test_a_segment_without_tags_needs_no_tag_file(disk: SimDisk) -> None:
    report = checked(disk, write_sealed(make_store(disk), records(1, 4)))
    assert (report.damage, report.notes, report.files) == ([], [], 2)


def test_a_damaged_tag_file_is_reported(disk: SimDisk, segment: AnySegment) -> None:
    disk.flip(TAG, 9)
    path, what = found(disk, segment)
    assert path == TAG
    assert "checksum" in what


def test_a_tag_file_of_other_records_is_reported(disk: SimDisk, segment: AnySegment) -> None:
    disk.put(TAG, tagfile.encode({}))
    assert found(disk, segment) == (TAG, "lists other tags than the records have")
    disk.flip(DATA, 60)
    damaged = {finding.file for finding in checked(disk, segment).damage}
    assert damaged == {DATA}, "with a record missing there is nothing to compare with"

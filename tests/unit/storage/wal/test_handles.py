"""Shared read handles: bounded, never closed under a reader."""

import errno

import pytest

from topics.storage.fs import File
from topics.storage.handles import Handles
from topics.testing import FaultFs, SimDisk


def disk_with(count: int) -> SimDisk:
    disk = SimDisk()
    for number in range(count):
        disk.put(f"/{number}", b"file %d" % number)
    return disk


def test_a_file_is_opened_once_and_read_often() -> None:
    faults = FaultFs(disk_with(1))
    handles = Handles(faults)
    assert [handles.pread("/0", 4, 0) for _ in range(3)] == [b"file"] * 3
    assert faults.count("open") == 1


def test_the_least_recently_used_file_makes_room() -> None:
    faults = FaultFs(disk_with(3))
    handles = Handles(faults, limit=2)
    for path in ("/0", "/1", "/0", "/2", "/0"):
        handles.pread(path, 1, 0)
    assert len(handles) == 2
    assert faults.count("open", "/0") == 1
    handles.pread("/1", 1, 0)
    assert faults.count("open", "/1") == 2


def test_a_file_in_use_is_never_closed() -> None:
    handles = Handles(disk_with(3), limit=1)
    with handles.borrow("/0") as file:
        handles.pread("/1", 1, 0)
        handles.evict_idle()
        handles.forget("/0")
        assert file.pread(6, 0) == b"file 0"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(6, 0)


def test_an_unlinked_file_stays_readable_until_it_is_forgotten() -> None:
    disk = disk_with(1)
    handles = Handles(disk)
    handles.pread("/0", 1, 0)
    disk.unlink("/0")
    assert handles.pread("/0", 6, 0) == b"file 0"
    handles.forget("/0")
    with pytest.raises(FileNotFoundError):
        handles.pread("/0", 6, 0)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_the_cache_is_given_up_once(code: int) -> None:
    faults = FaultFs(disk_with(3))
    handles = Handles(faults)
    handles.pread("/0", 1, 0)
    handles.pread("/1", 1, 0)
    faults.fail("open", code)
    assert handles.pread("/2", 6, 0) == b"file 2"
    assert len(handles) == 1
    faults.fail("open", code, always=True)
    with pytest.raises(OSError, match="open files"):
        handles.pread("/0", 1, 0)


def test_other_errors_are_passed_on_at_once() -> None:
    faults = FaultFs(disk_with(1))
    handles = Handles(faults)
    faults.fail("open", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        handles.pread("/0", 1, 0)
    assert faults.count("open") == 1


def test_closing_lets_go_of_everything() -> None:
    handles = Handles(disk_with(2))
    handles.pread("/0", 1, 0)
    with handles.borrow("/1") as file:
        handles.close()
        assert len(handles) == 0
        assert file.pread(6, 0) == b"file 1"


def test_two_readers_that_open_a_file_at_once_share_one_handle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = disk_with(1)
    handles = Handles(disk)
    really_open, opened = disk.open, list[File]()

    def overtaken(path: str) -> File:
        file = really_open(path)
        opened.append(file)
        if len(opened) == 1:  # another reader opens and reads it before this one is back
            assert handles.pread(path, 6, 0) == b"file 0"
        return file

    monkeypatch.setattr(disk, "open", overtaken)
    assert handles.pread("/0", 6, 0) == b"file 0"
    late, kept = opened
    assert (len(handles), kept.pread(6, 0)) == (1, b"file 0")
    with pytest.raises(OSError, match="Bad file descriptor"):
        late.pread(6, 0)

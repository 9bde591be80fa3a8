"""Opening what cannot be opened: the error says what is wrong and what to do; nothing changes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.stores import contents, fill, opened, viewed

import topics
from topics.errors import DirectoryLocked, RefusalReason, RefusedToOpen
from topics.storage.checksum import h64
from topics.testing import FaultFs, Op, PowerOff, SimDisk

Tree = dict[str, tuple[bytes, int, int]]
ADVICE = re.compile(r"\b(restore|use|give|check|mount|set|close|free|create|try)\b")
"""The word with which an error begins to say what to do."""


def tree(directory: Path) -> Tree:
    """Every name below, with bytes, mode and time of change."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = data, status.st_mode, status.st_mtime_ns
    return found


def refused(directory: Path, *, read_only: bool = False) -> RefusedToOpen:
    """Open, be refused, and have nothing changed."""
    parent = directory.parent
    before = tree(parent)
    with pytest.raises(RefusedToOpen) as caught:
        topics.open(directory, read_only=read_only)
    assert tree(parent) == before, "a refusal changes nothing"
    assert ADVICE.search(str(caught.value)), caught.value
    assert json.loads(caught.value.line())["refused"] == caught.value.reason
    return caught.value


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with segments, two snapshots and a trimmed log."""
    directory = tmp_path / "parent" / "data"
    for _ in range(3):
        with topics.open(directory, segment_max_events=4) as log:
            fill(log)
    (directory / ".topics.lock").write_bytes(b"")  # an open writes here before it may look further
    return directory


def relocked(directory: Path, damage: Callable[[Path], None]) -> RefusedToOpen:
    """Be refused by a store of ours: only the lock file may say who tried."""
    damage(directory)
    lock = directory / ".topics.lock"
    before = tree(directory)
    with pytest.raises(RefusedToOpen) as caught:
        topics.open(directory)
    after = tree(directory)
    for names in (before, after):
        names.pop(str(lock), None)
        names[str(directory)] = b"", 0, 0
    assert after == before, "a refusal changes nothing"
    assert ADVICE.search(str(caught.value)), caught.value
    refused(directory, read_only=True)
    return caught.value


# Not a store at all


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "photos"
    directory.mkdir()
    (directory / "cat.jpg").write_bytes(b"\xff\xd8")
    error = refused(directory)
    assert error.reason == "format"
    assert "cat.jpg" in str(error)
    assert "give an empty or a new directory" in str(error)


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    error = refused(tmp_path / "file")
    assert "is a file; give a directory" in str(error)


def test_a_place_inside_a_file_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refused(tmp_path / "file" / "data").reason in ("format", "io_error")


@pytest.mark.parametrize("exists", [False, True])
def test_there_is_nothing_to_read_where_nobody_wrote(exists: bool, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    if exists:
        directory.mkdir()
    error = refused(directory, read_only=True)
    assert error.reason == "format"
    assert "holds no topics store" in str(error)


# Not a store of this version, or not a whole one


def write_format(directory: Path, **changes: object) -> None:
    path = directory / "FORMAT"
    line = json.dumps(json.loads(path.read_bytes().split(b"\n")[0]) | changes).encode()
    path.write_bytes(b"%b\n%016x" % (line, h64(line)))


@pytest.mark.parametrize("name", ["store", "wal", "segment", "snapshot"])
def test_a_newer_format_asks_for_the_program_that_wrote_it(name: str, store: Path) -> None:
    error = relocked(store, lambda d: write_format(d, **{name: 99}))
    assert error.reason == "format"
    assert f"its {name} format is version 99" in str(error)
    assert "use the program that wrote it" in str(error)


def test_a_damaged_format_asks_for_a_backup(store: Path) -> None:
    def damage(directory: Path) -> None:
        (directory / "FORMAT").write_bytes(b"{}")

    error = relocked(store, damage)
    assert error.reason == "format"
    assert "restore it from a backup" in str(error)


def test_format_alone_means_that_contents_were_lost(store: Path) -> None:
    def damage(directory: Path) -> None:
        for name in ("wal", "meta", "topics"):
            shutil.rmtree(directory / name)

    error = relocked(store, damage)
    assert error.reason == "metadata_lost"
    assert "restore" in str(error)


def test_contents_without_format_are_not_taken_for_a_new_store(store: Path) -> None:
    error = relocked(store, lambda d: (d / "FORMAT").unlink())
    assert error.reason == "format"
    assert "restore FORMAT" in str(error)


MISSING: dict[str, tuple[str, RefusalReason]] = {
    "its log": ("wal", "wal_missing"),
    "a log file": ("wal/wal-*.log", "wal_missing"),
    "its metadata": ("meta", "wal_missing"),
    "its snapshots": ("meta/snapshot.*", "metadata_lost"),
    "all that the log can do without": ("meta", "wal_missing"),
    "its segments": ("topics", "segment_missing"),
    "a topic's segments": ("topics/00000004", "segment_missing"),
    "the records of a segment": ("topics/*/seg-*.data", "segment_missing"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_directory_copied_without_a_part_is_refused(what: str, store: Path) -> None:
    pattern, reason = MISSING[what]

    def damage(directory: Path) -> None:
        for path in list(directory.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    error = relocked(store, damage)
    assert error.reason == reason, str(error)


def test_another_store_s_log_file_is_noticed(store: Path, tmp_path: Path) -> None:
    with topics.open(tmp_path / "other") as log:
        fill(log)
    other = next((tmp_path / "other" / "wal").glob("wal-*.log"))

    def damage(directory: Path) -> None:
        ours = max((directory / "wal").glob("wal-*.log"))
        ours.write_bytes(other.read_bytes())

    assert relocked(store, damage).reason in ("foreign_frame", "wal_missing", "wal_short")


# A place where nothing can be written


WRITES: tuple[Op, ...] = ("lock", "pwrite", "truncate", "fallocate", "mkdirs", "rename", "unlink")


@contextmanager
def unwritable(directory: Path) -> Iterator[bool]:
    """Make a directory one that this process may not write to; False where that cannot be had."""
    if os.geteuid():
        folders = [path for path in (directory, *directory.rglob("*")) if path.is_dir()]
        for folder in folders:
            folder.chmod(0o500)
        yield True
        for folder in folders:
            folder.chmod(0o700)
        return
    # Nothing is forbidden to root but a file system that cannot be written to.
    place = str(directory)
    bound = subprocess.run(["mount", "--bind", place, place], check=False, capture_output=True)
    if bound.returncode:
        yield False
        return
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield True
    finally:
        # Detached at once, whoever else may have a look at the place at this moment.
        subprocess.run(["umount", "--lazy", place], check=True)


def test_an_unwritable_place_is_refused_for_writing_and_serves_readers(store: Path) -> None:
    with unwritable(store.parent) as could_be_made:
        if could_be_made:
            for place in (store, store.parent / "new"):
                error = refused(place)
                assert error.reason == "io_error"
                assert re.search("Read-only file system|Permission denied", str(error))
                assert "permissions" in str(error)
        with topics.open(store, read_only=True) as log:
            assert log.read("fsync").records


def test_a_read_only_file_system_is_refused_for_writing_and_serves_readers() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        fill(log)
    before, files = contents(viewed(disk)), disk.contents()
    fs = FaultFs(disk)
    for op in WRITES:
        fs.fail(op, errno.EROFS, always=True)
    with pytest.raises(RefusedToOpen) as caught:
        opened(fs)
    assert caught.value.reason == "io_error"
    assert "Read-only file system" in str(caught.value)
    assert disk.contents() == files
    assert contents(viewed(fs)) == before


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_directory_that_cannot_be_made_is_refused(number: int) -> None:
    disk = SimDisk()
    fs = FaultFs(disk)
    fs.fail("mkdirs", number)
    with pytest.raises(RefusedToOpen) as caught:
        opened(fs)
    assert caught.value.reason == "io_error"
    assert os.strerror(number) in str(caught.value)
    assert disk.paths() == []


def test_no_space_for_a_new_store_is_refused_and_room_heals_it() -> None:
    disk = SimDisk(capacity=300 << 10)
    with pytest.raises(RefusedToOpen) as caught:
        opened(disk)
    assert caught.value.reason == "io_error"
    assert "No space left" in str(caught.value)
    disk.capacity = None
    with opened(disk) as log:
        log.append("t", {"data": 1})


def test_no_space_on_opening_changes_no_record_and_room_heals_it() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        fill(log)
    disk.settle()
    before = contents(viewed(disk))
    disk.capacity = disk.used
    with pytest.raises(RefusedToOpen) as caught:
        opened(disk)
    assert caught.value.reason == "io_error"
    assert "No space left" in str(caught.value)
    assert contents(viewed(disk)) == before
    disk.capacity = None
    with opened(disk) as log:
        assert contents(log) == before


# Somebody else's turn

HOLDER = """
import sys, topics
log = topics.open(sys.argv[1])
log.append("t", {"data": 1})
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        error = refused(directory)
        assert isinstance(error, DirectoryLocked)
        assert error.reason == "locked"
        assert error.pid == holder.pid
        assert f"process {holder.pid} on {os.uname().nodename}" in str(error)
        assert "close it there, or open it read-only" in str(error)
        with topics.open(directory, read_only=True) as log:
            assert len(log.read("t").records) == 1
        holder.kill()
    with topics.open(directory) as log:  # the lock of a dead process holds nobody up
        assert len(log.read("t").records) == 1


def test_a_second_open_in_one_process_is_refused_too(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("t", {"data": 1})
        error = refused(tmp_path / "data")
        assert f"process {os.getpid()}" in str(error)
        log.append("t", {"data": 2})


def test_a_lock_file_with_rubbish_in_it_holds_nobody_up(tmp_path: Path) -> None:
    with topics.open(tmp_path / "data") as log:
        log.append("t", {"data": 1})
    (tmp_path / "data" / ".topics.lock").write_bytes(b"\xff" * 10)
    with topics.open(tmp_path / "data") as log:
        assert len(log.read("t").records) == 1


def test_an_interrupted_birth_is_begun_again() -> None:
    """Log files with a header only, or none yet, and no FORMAT: nobody was promised anything."""
    counting = FaultFs(SimDisk())
    opened(counting)
    for call in range(1, len(counting.trace) + 1):
        disk = SimDisk()
        fs = FaultFs(disk)
        fs.stop_before(call, disk.kill)
        with pytest.raises(PowerOff):
            opened(fs)
        with opened(disk) as log:
            log.append("t", {"data": call})
        assert [record.data for record in viewed(disk).read("t").records] == [call]

"""What every `Fs` shows a program: one suite for the simulated disk and the real one.

If the two ever differ, a crash test on the simulated disk proves nothing.
"""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from topics.storage.fs import (
    Fs,
    RealFs,
    RealLock,
    _kernel_boot_id,
    is_open_to_all,
    parent_of,
    read_exact,
    read_file,
    replace_file,
    write_all,
)
from topics.testing import FaultFs, SimDisk, WatchFs


@dataclass
class Place:
    """A file system and an empty directory in it."""

    fs: Fs
    root: str

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, data: bytes) -> str:
        file = self.fs.open(self.at(name), write=True, create=True)
        write_all(file, data, 0)
        file.close()
        return self.at(name)


WRAPPERS: dict[str, Callable[[Fs], Fs]] = {
    "bare": lambda fs: fs,
    "wrapped": lambda fs: WatchFs(FaultFs(fs)),
}


@pytest.fixture(params=["sim", "real"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealFs(), str(tmp_path))
    disk = SimDisk()
    disk.mkdirs("/data")
    return Place(disk, "/data")


@pytest.fixture(params=sorted(WRAPPERS))
def place(request: pytest.FixtureRequest, base: Place) -> Place:
    return Place(WRAPPERS[request.param](base.fs), base.root)


def test_a_written_file_reads_back_through_any_handle(place: Place) -> None:
    path = place.put("a", b"hello")
    reader = place.fs.open(path)
    assert reader.pread(5, 0) == b"hello"
    assert reader.pread(3, 1) == b"ell"
    assert reader.size() == place.fs.size(path) == 5
    reader.close()


def test_a_read_is_short_only_at_the_end_of_the_file(place: Place) -> None:
    reader = place.fs.open(place.put("a", b"hello"))
    assert reader.pread(100, 3) == b"lo"
    assert reader.pread(100, 5) == b""
    assert reader.pread(100, 500) == b""
    reader.close()


def test_a_write_past_the_end_leaves_zeros_between(place: Place) -> None:
    file = place.fs.open(place.at("a"), write=True, create=True)
    assert file.pwrite(b"x", 1000) == 1
    assert file.pread(2000, 0) == bytes(1000) + b"x"
    file.close()


def test_every_kind_of_buffer_can_be_written(place: Place) -> None:
    file = place.fs.open(place.at("a"), write=True, create=True)
    file.pwrite(b"ab", 0)
    file.pwrite(bytearray(b"cd"), 2)
    file.pwrite(memoryview(b"xefx")[1:3], 4)
    assert file.pwrite(b"", 0) == 0
    assert file.pread(9, 0) == b"abcdef"
    file.close()


def test_truncate_cuts_and_a_longer_size_reads_zeros(place: Place) -> None:
    file = place.fs.open(place.put("a", b"abcdef"), write=True)
    file.truncate(3)
    assert file.size() == 3
    file.truncate(6)
    assert file.pread(9, 0) == b"abc\0\0\0"
    file.close()


def test_fallocate_grows_and_never_shrinks(place: Place) -> None:
    file = place.fs.open(place.put("a", b"abc"), write=True)
    file.fallocate(5)
    assert file.pread(9, 0) == b"abc\0\0"
    file.fallocate(1)
    assert file.size() == 5
    with pytest.raises(OSError, match="Invalid argument"):
        file.fallocate(0)
    file.close()


def test_syncing_changes_nothing_visible(place: Place) -> None:
    file = place.fs.open(place.put("a", b"abc"), write=True)
    file.fdatasync()
    file.fsync()
    place.fs.sync_dir(place.root)
    assert file.pread(9, 0) == b"abc"
    file.close()


def test_opening_for_writing_keeps_the_contents_unless_told(place: Place) -> None:
    path = place.put("a", b"abc")
    place.fs.open(path, write=True, create=True).close()
    assert place.fs.size(path) == 3
    place.fs.open(path, write=True, truncate=True).close()
    assert place.fs.size(path) == 0


def test_exclusive_creation_refuses_an_existing_file(place: Place) -> None:
    place.fs.open(place.at("new"), write=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        place.fs.open(place.at("new"), write=True, exclusive=True)


@pytest.mark.parametrize("flag", ["create", "exclusive", "truncate"])
def test_changing_a_file_by_opening_needs_write(place: Place, flag: str) -> None:
    with pytest.raises(ValueError, match="need write"):
        place.fs.open(place.at("a"), **{flag: True})


def test_a_handle_for_reading_refuses_to_change_the_file(place: Place) -> None:
    reader = place.fs.open(place.put("a", b"abc"))
    for change in (
        lambda: reader.pwrite(b"x", 0),
        lambda: reader.truncate(0),
        lambda: reader.fallocate(9),
    ):
        with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument"):
            change()
    reader.fsync()
    reader.close()
    assert read_file(place.fs, place.at("a")) == b"abc"


def test_a_closed_handle_is_unusable_and_closing_twice_is_harmless(place: Place) -> None:
    file = place.fs.open(place.put("a", b"abc"), write=True)
    file.close()
    file.close()
    for use in (lambda: file.pread(1, 0), file.fsync, file.size):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_a_negative_offset_is_refused(place: Place) -> None:
    file = place.fs.open(place.put("a", b"abc"), write=True)
    for use in (lambda: file.pread(1, -1), lambda: file.pwrite(b"x", -1)):
        with pytest.raises(OSError, match="Invalid argument"):
            use()
    file.close()


MISSING: dict[str, Callable[[Place, str], object]] = {
    "open": lambda place, path: place.fs.open(path),
    "create below it": lambda place, path: place.fs.open(path + "/x", write=True, create=True),
    "size": lambda place, path: place.fs.size(path),
    "unlink": lambda place, path: place.fs.unlink(path),
    "rmdir": lambda place, path: place.fs.rmdir(path),
    "listdir": lambda place, path: place.fs.listdir(path),
    "sync_dir": lambda place, path: place.fs.sync_dir(path),
    "rename": lambda place, path: place.fs.rename(path, place.at("other")),
    "rename into it": lambda place, path: place.fs.rename(place.at("file"), path + "/x"),
    "lock below it": lambda place, path: place.fs.lock(path + "/x"),
}


@pytest.mark.parametrize("use", sorted(MISSING))
def test_a_missing_path_raises_file_not_found(place: Place, use: str) -> None:
    place.put("file", b"")
    with pytest.raises(FileNotFoundError):
        MISSING[use](place, place.at("missing"))


NOT_A_DIRECTORY: dict[str, Callable[[Place, str], object]] = {
    "open below it": lambda place, path: place.fs.open(path + "/x"),
    "create below it": lambda place, path: place.fs.open(path + "/x", write=True, create=True),
    "mkdirs below it": lambda place, path: place.fs.mkdirs(path + "/x"),
    "deep below it": lambda place, path: place.fs.unlink(path + "/x/y"),
    "listdir": lambda place, path: place.fs.listdir(path),
    "rmdir": lambda place, path: place.fs.rmdir(path),
    "sync_dir": lambda place, path: place.fs.sync_dir(path),
    "replace by a directory": lambda place, path: place.fs.rename(place.at("dir"), path),
}


@pytest.mark.parametrize("use", sorted(NOT_A_DIRECTORY))
def test_a_file_used_as_a_directory_raises_not_a_directory(place: Place, use: str) -> None:
    place.fs.mkdirs(place.at("dir"))
    with pytest.raises(NotADirectoryError):
        NOT_A_DIRECTORY[use](place, place.put("file", b""))


IS_A_DIRECTORY: dict[str, Callable[[Place, str], object]] = {
    "open": lambda place, path: place.fs.open(path),
    "open to write": lambda place, path: place.fs.open(path, write=True, create=True),
    "size": lambda place, path: place.fs.size(path),
    "unlink": lambda place, path: place.fs.unlink(path),
    "replace by a file": lambda place, path: place.fs.rename(place.put("file", b""), path),
}


@pytest.mark.parametrize("use", sorted(IS_A_DIRECTORY))
def test_a_directory_used_as_a_file_raises_is_a_directory(place: Place, use: str) -> None:
    place.fs.mkdirs(place.at("dir"))
    with pytest.raises(IsADirectoryError):
        IS_A_DIRECTORY[use](place, place.at("dir"))


def test_mkdirs_returns_what_it_created_parents_first(place: Place) -> None:
    made = [place.at("a"), place.at("a/b"), place.at("a/b/c")]
    assert place.fs.mkdirs(place.at("a/b/c")) == made
    assert place.fs.mkdirs(place.at("a/b/c")) == []
    assert place.fs.listdir(place.at("a")) == ["b"]


def test_mkdirs_refuses_the_name_of_a_file(place: Place) -> None:
    with pytest.raises(FileExistsError):
        place.fs.mkdirs(place.put("a", b""))


def test_listdir_is_sorted_and_shows_files_and_directories(place: Place) -> None:
    place.fs.mkdirs(place.at("b"))
    for name in ("c", "a", "10", "9"):
        place.put(name, b"")
    assert place.fs.listdir(place.root) == ["10", "9", "a", "b", "c"]


def test_room_is_told_for_a_place_that_exists(place: Place) -> None:
    free, total = place.fs.room(place.root)
    assert 0 < free <= total
    with pytest.raises(FileNotFoundError):
        place.fs.room(place.at("absent/below"))


def test_exists_answers_for_files_directories_and_neither(place: Place) -> None:
    path = place.put("a", b"")
    assert place.fs.exists(path)
    assert place.fs.exists(place.root)
    assert not place.fs.exists(place.at("missing"))
    assert not place.fs.exists(place.at("missing/deep"))
    assert not place.fs.exists(path + "/below a file")


def test_rename_replaces_the_target_and_frees_the_source(place: Place) -> None:
    place.put("old", b"old")
    place.fs.rename(place.put("new", b"new"), place.at("old"))
    assert place.fs.listdir(place.root) == ["old"]
    assert read_file(place.fs, place.at("old")) == b"new"


def test_rename_to_itself_keeps_the_file(place: Place) -> None:
    path = place.put("a", b"abc")
    place.fs.rename(path, path)
    assert read_file(place.fs, path) == b"abc"


def test_rename_moves_a_whole_directory(place: Place) -> None:
    place.fs.mkdirs(place.at("one/deep"))
    place.fs.mkdirs(place.at("two"))
    place.put("one/deep/file", b"abc")
    place.fs.rename(place.at("one/deep"), place.at("two/moved"))
    assert place.fs.listdir(place.at("one")) == []
    assert read_file(place.fs, place.at("two/moved/file")) == b"abc"


def test_rename_replaces_only_an_empty_directory(place: Place) -> None:
    for name in ("source", "empty", "full"):
        place.fs.mkdirs(place.at(name))
    place.put("full/file", b"")
    with pytest.raises(OSError, match="not empty"):
        place.fs.rename(place.at("source"), place.at("full"))
    place.fs.rename(place.at("source"), place.at("empty"))
    assert place.fs.listdir(place.root) == ["empty", "full"]


def test_a_directory_cannot_move_into_itself(place: Place) -> None:
    place.fs.mkdirs(place.at("a"))
    with pytest.raises(OSError, match="Invalid argument"):
        place.fs.rename(place.at("a"), place.at("a/b"))


def test_an_unlinked_file_stays_readable_through_open_handles(place: Place) -> None:
    path = place.put("a", b"abc")
    reader = place.fs.open(path)
    place.fs.unlink(path)
    assert not place.fs.exists(path)
    assert reader.pread(3, 0) == b"abc"
    assert reader.size() == 3
    reader.close()


def test_a_handle_follows_its_file_not_the_name(place: Place) -> None:
    file = place.fs.open(place.put("a", b"first"), write=True)
    place.fs.rename(place.at("a"), place.at("b"))
    place.put("a", b"second")
    file.pwrite(b"FIRST", 0)
    file.close()
    assert read_file(place.fs, place.at("b")) == b"FIRST"
    assert read_file(place.fs, place.at("a")) == b"second"


def test_rmdir_removes_only_an_empty_directory(place: Place) -> None:
    place.fs.mkdirs(place.at("d"))
    place.put("d/file", b"")
    with pytest.raises(OSError, match="not empty") as caught:
        place.fs.rmdir(place.at("d"))
    assert caught.value.errno == errno.ENOTEMPTY
    place.fs.unlink(place.at("d/file"))
    place.fs.rmdir(place.at("d"))
    assert not place.fs.exists(place.at("d"))


def test_a_lock_excludes_every_other_until_closed(place: Place) -> None:
    path = place.at(".lock")
    first = place.fs.lock(path)
    with pytest.raises(BlockingIOError):
        place.fs.lock(path)
    first.close()
    first.close()
    second = place.fs.lock(path)
    first.close()
    with pytest.raises(BlockingIOError):
        place.fs.lock(path)
    second.close()
    assert place.fs.exists(path)


def test_a_lock_carries_a_note_that_anyone_may_read(place: Place) -> None:
    path = place.at(".lock")
    held = place.fs.lock(path)
    assert held.read() == b""
    held.replace(b"pid 12345")
    held.replace(b"pid 7")
    assert held.read() == b"pid 7"
    assert read_file(place.fs, path) == b"pid 7"
    held.close()
    successor = place.fs.lock(path)
    assert successor.read() == b"pid 7"
    successor.close()


def test_the_boot_id_is_stable_and_16_bytes(place: Place) -> None:
    assert len(place.fs.boot_id()) == 16
    assert place.fs.boot_id() == place.fs.boot_id()


def test_replace_file_gives_new_contents_and_leaves_no_temporary(place: Place) -> None:
    replace_file(place.fs, place.at("CURRENT"), b"one")
    replace_file(place.fs, place.at("CURRENT"), b"second")
    assert read_file(place.fs, place.at("CURRENT")) == b"second"
    assert place.fs.listdir(place.root) == ["CURRENT"]


def test_read_exact_refuses_to_return_less(place: Place) -> None:
    file = place.fs.open(place.put("a", b"hello"))
    assert read_exact(file, 5, 0) == b"hello"
    assert read_exact(file, 0, 99) == b""
    with pytest.raises(EOFError, match="2 bytes before 7"):
        read_exact(file, 4, 3)
    file.close()


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_write_all_and_read_exact_survive_any_number_of_short_calls(base: Place, keep: int) -> None:
    fs = FaultFs(base.fs)
    fs.fail("pwrite", "short", always=True, keep=keep)
    fs.fail("pread", "short", always=True, keep=keep)
    file = fs.open(base.at("a"), write=True, create=True)
    write_all(file, b"hello world", 3)
    assert read_exact(file, 11, 3) == b"hello world"
    assert fs.count("pwrite") == -(-11 // keep)
    file.close()


@pytest.mark.parametrize("after", [1, 2])
def test_write_all_reports_a_write_without_progress(base: Place, after: int) -> None:
    fs = FaultFs(base.fs)
    fs.fail("pwrite", "short", keep=3)
    fs.fail("pwrite", "zero", nth=after, always=True)
    file = fs.open(base.at("a"), write=True, create=True)
    if after == 1:
        fs.clear()
        fs.fail("pwrite", "zero", always=True)
    with pytest.raises(OSError, match="no progress") as caught:
        write_all(file, b"hello", 0)
    assert caught.value.errno == errno.EIO
    assert fs.count("pwrite") == after
    file.close()


@pytest.mark.parametrize(
    ("path", "parent"),
    [("/a/b", "/a"), ("/a/b/", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("/", "/")],
)
def test_the_parent_is_the_directory_that_holds_the_name(path: str, parent: str) -> None:
    assert parent_of(path) == parent


def test_real_files_and_directories_are_private_and_not_inherited(tmp_path: Path) -> None:
    fs = RealFs()
    fs.mkdirs(str(tmp_path / "d" / "e"))
    fs.open(str(tmp_path / "d" / "f"), write=True, create=True).close()
    lock = fs.lock(str(tmp_path / "l"))
    lock.close()
    assert _mode(tmp_path / "d") == _mode(tmp_path / "d" / "e") == 0o700
    assert _mode(tmp_path / "d" / "f") == _mode(tmp_path / "l") == 0o600


def test_closing_an_inherited_lock_does_not_free_it(tmp_path: Path) -> None:
    path = str(tmp_path / "l")
    held = RealFs().lock(path)
    # A forked child holds a duplicate of the descriptor, which is the same lock.
    copy = RealLock()
    copy._fds.append(os.dup(held._fd))
    copy.close()
    with pytest.raises(BlockingIOError):
        RealFs().lock(path)
    held.close()


def test_a_directory_that_all_users_can_write_to_is_recognised(tmp_path: Path) -> None:
    assert not is_open_to_all(str(tmp_path))
    tmp_path.chmod(0o777)
    assert is_open_to_all(str(tmp_path))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", [None, "not an id\n"])
def test_without_a_kernel_boot_id_no_two_processes_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    source = tmp_path / "boot_id"
    if content is not None:
        source.write_text(content)
    monkeypatch.setattr("topics.storage.fs._BOOT_ID_PATH", str(source))
    first, second = _kernel_boot_id.__wrapped__(), _kernel_boot_id.__wrapped__()
    assert len(first) == len(second) == 16
    assert first != second

"""Objects in a directory: whole or not at all, whatever happens on the way."""

import errno
from pathlib import Path

import pytest

from topics.errors import ObjectStoreFailed
from topics.storage import crashpoints
from topics.storage.fs import RealFs
from topics.storage.objects.directory import LOCK, DirectoryObjects
from topics.storage.objects.interface import NoSuchObject
from topics.storage.objects.opening import open_objects
from topics.testing import FaultFs, SimDisk
from topics.testing._mount import PowerOff

POINTS = sorted(point for point in crashpoints.NAMES if point.startswith("object."))


class Cut(BaseException):
    """The power goes."""


def _cut(name: str) -> crashpoints.Hook:
    def hook(reached: str) -> None:
        if reached == name:
            raise Cut

    return hook


def _kill(disk: SimDisk, name: str) -> crashpoints.Hook:
    def hook(reached: str) -> None:
        if reached == name:
            disk.kill()
            raise Cut

    return hook


@pytest.mark.parametrize("point", POINTS)
def test_a_power_cut_leaves_the_old_object_or_the_new_one(point: str) -> None:
    disk = SimDisk()
    objects = DirectoryObjects(disk, "/dest")
    objects.put("deep/a", b"old")
    with crashpoints.installed(_cut(point)), pytest.raises(Cut):
        objects.put("deep/a", b"newer")
    disk.crash()
    after = DirectoryObjects(disk, "/dest")
    assert after.read("deep/a").data in (b"old", b"newer")
    assert {each.name for each in after.list()} == {"deep/a"}


@pytest.mark.parametrize("point", POINTS)
def test_what_a_kill_leaves_unfinished_can_be_tidied_up(point: str) -> None:
    disk = SimDisk()
    objects = DirectoryObjects(disk, "/dest")
    objects.put("deep/a", b"old")
    with crashpoints.installed(_kill(disk, point)), pytest.raises((Cut, PowerOff)):
        DirectoryObjects(disk.mount(), "/dest").put("deep/a", b"newer")
    assert objects.read("deep/a").data in (b"old", b"newer")
    assert {each.name for each in objects.list()} == {"deep/a"}
    objects.tidy()
    assert disk.listdir("/dest/deep") == ["a"]


def test_what_was_put_survives_a_power_cut_under_its_name() -> None:
    disk = SimDisk()
    objects = DirectoryObjects(disk, "/mnt/dest/")
    objects.put("a/b/c", b"1")
    objects.create("root", b"2")
    objects.swap("root", b"3", objects.read("root").version)
    objects.put("gone", b"4")
    objects.delete("gone")
    disk.crash()
    assert {each.name for each in objects.list()} == {"a/b/c", "root"}
    assert objects.read("root").data == b"3"


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = SimDisk()
    DirectoryObjects(disk, "/dest").put("a", b"old")
    faulty = FaultFs(disk)
    faulty.fail("pwrite", errno.ENOSPC)
    with pytest.raises(ObjectStoreFailed, match="No space left on device; try again") as hit:
        DirectoryObjects(faulty, "/dest").put("a", b"new")
    assert hit.value.retryable
    assert disk.listdir("/dest") == ["a"]
    assert DirectoryObjects(disk, "/dest").read("a").data == b"old"


def test_a_directory_that_may_only_be_read_is_told() -> None:
    disk = SimDisk()
    DirectoryObjects(disk, "/dest").create("a", b"1")
    faulty = FaultFs(disk)
    faulty.fail("open", errno.EROFS, path="/dest/b*")
    with pytest.raises(ObjectStoreFailed, match="Read-only file system") as hit:
        DirectoryObjects(faulty, "/dest").put("b", b"1")
    assert hit.value.denied
    assert DirectoryObjects(faulty, "/dest").read("a").data == b"1"


def test_a_destination_that_vanishes_under_a_write_is_told() -> None:
    faulty = FaultFs(SimDisk())
    faulty.fail("open", errno.ENOENT)
    with pytest.raises(ObjectStoreFailed, match="cannot write a: No such file"):
        DirectoryObjects(faulty, "/dest").put("a", b"1")


def test_a_lock_that_is_held_is_waited_for_and_then_told(tmp_path: Path) -> None:
    fs = RealFs()
    fs.mkdirs(str(tmp_path / "dest"))
    lock = fs.lock(str(tmp_path / "dest" / LOCK))
    pauses: list[float] = []
    objects = DirectoryObjects(fs, str(tmp_path / "dest"), patience_s=0.05, pause=pauses.append)
    with pytest.raises(ObjectStoreFailed, match="another process holds it; try again"):
        objects.create("a", b"1")
    assert len(pauses) == 5
    lock.close()
    objects.create("a", b"1")
    assert {each.name for each in objects.list()} == {"a"}


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "dest").write_bytes(b"")
    objects = open_objects(f"file://{tmp_path}/dest")
    with pytest.raises(ObjectStoreFailed, match="check the address"):
        objects.put("a", b"1")


def test_an_object_deleted_while_it_is_listed_is_left_out() -> None:
    class Vanishing(SimDisk):
        def size(self, path: str) -> int:
            self.unlink(path)
            return super().size(path)

    objects = DirectoryObjects(Vanishing(), "/dest")
    objects.put("a", b"1")
    assert list(objects.list()) == []


def test_an_object_deleted_while_it_is_deleted_is_fine(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.put("a", b"1")
    (tmp_path / "a").unlink()
    objects.delete("a")
    with pytest.raises(NoSuchObject):
        objects.read("a")

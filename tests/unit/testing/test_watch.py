"""WatchFs objects to a dangerous order of calls and to nothing else."""

import errno
from pathlib import Path

import pytest

from topics.storage.fs import File, Fs, RealFs, replace_file, write_all
from topics.testing import FaultFs, SimDisk, WatchFs

WAL = "/data/wal/wal-0000000000000001.log"
SNAPSHOT = "/data/meta/snapshot.{:04}.bin"
HOT = "/data/topics/0000000A/seg-0000000000000001.data"
COLD = "/cold/topics/0000000A/seg-0000000000000001.data"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    for path in ("/data/wal", "/data/meta", "/data/topics", "/cold"):
        disk.mkdirs(path)
    disk.settle()
    return disk


@pytest.fixture
def faults(disk: SimDisk) -> FaultFs:
    return FaultFs(disk)


@pytest.fixture
def watch(faults: FaultFs) -> WatchFs:
    return WatchFs(faults, data_dir="/data", cold_dir="/cold")


def new_wal(watch: WatchFs) -> File:
    """A WAL file with a durable name and a synced header."""
    file = watch.open(WAL, write=True, create=True)
    file.fallocate(4096)
    file.pwrite(b"header", 0)
    file.fsync()
    watch.sync_dir("/data/wal")
    return file


def save_snapshot(watch: WatchFs, number: int) -> None:
    replace_file(watch, SNAPSHOT.format(number), b"state")


# Acks.


def test_an_ack_after_the_sync_is_fine(watch: WatchFs) -> None:
    file = new_wal(watch)
    file.pwrite(b"frame", 6)
    file.fdatasync()
    watch.acked(WAL, 11)
    file.pwrite(b"beacon", 11)
    watch.acked(WAL, 11)
    watch.check()


def test_an_ack_before_the_sync_is_caught(watch: WatchFs) -> None:
    file = new_wal(watch)
    file.pwrite(b"frame", 6)
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 11)


def test_a_sync_that_fails_covers_nothing(watch: WatchFs, faults: FaultFs) -> None:
    file = new_wal(watch)
    file.pwrite(b"frame", 6)
    faults.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.fdatasync()
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 11)


def test_a_sync_does_not_cover_what_was_written_while_it_ran(disk: SimDisk) -> None:
    class Busy(FaultFs):
        """Writes one more byte in the middle of every sync."""

        def check(self, op: str, path: str) -> None:
            if op == "fdatasync":
                file.pwrite(b"x", 11)

    watch = WatchFs(Busy(disk))
    file = new_wal(watch)
    file.pwrite(b"frame", 6)
    file.fdatasync()
    watch.acked(WAL, 11)
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 12)


@pytest.mark.parametrize("change", ["truncate", "fallocate"])
def test_a_size_change_is_un_synced_too(watch: WatchFs, change: str) -> None:
    file = new_wal(watch)
    getattr(file, change)(5000)
    watch.acked(WAL, 4096)
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 4097)


def test_allocating_what_is_there_changes_nothing(watch: WatchFs) -> None:
    file = new_wal(watch)
    file.fallocate(100)
    watch.acked(WAL, 4096)


def test_an_ack_from_a_file_whose_name_is_not_durable_is_caught(watch: WatchFs) -> None:
    file = watch.open(WAL, write=True, create=True)
    file.pwrite(b"frame", 0)
    file.fsync()
    with pytest.raises(AssertionError, match="is not durable"):
        watch.acked(WAL, 5)
    watch.sync_dir("/data/wal")
    watch.acked(WAL, 5)


def test_an_ack_from_a_file_in_a_directory_that_is_not_durable_is_caught(watch: WatchFs) -> None:
    path = "/data/wal/shard-00/wal-0000000000000001.log"
    watch.mkdirs("/data/wal/shard-00")
    file = watch.open(path, write=True, create=True)
    file.fsync()
    watch.sync_dir("/data/wal/shard-00")
    with pytest.raises(AssertionError, match="shard-00 is not durable"):
        watch.acked(path, 0)
    watch.sync_dir("/data/wal")
    watch.acked(path, 0)


def test_a_failed_directory_sync_makes_no_name_durable(watch: WatchFs, faults: FaultFs) -> None:
    watch.open(WAL, write=True, create=True).fsync()
    faults.fail("sync_dir", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        watch.sync_dir("/data/wal")
    with pytest.raises(AssertionError, match="is not durable"):
        watch.acked(WAL, 0)


def test_a_file_that_was_there_before_is_taken_as_durable(disk: SimDisk, watch: WatchFs) -> None:
    disk.put(WAL, b"frames")
    watch.acked(WAL, 6)


# Temporary files.


def test_a_temporary_file_renamed_before_its_sync_is_caught(disk: SimDisk, watch: WatchFs) -> None:
    file = watch.open("/data/FORMAT.tmp", write=True, create=True)
    write_all(file, b"one", 0)
    with pytest.raises(AssertionError, match="renamed before its fsync"):
        watch.rename("/data/FORMAT.tmp", "/data/FORMAT")
    assert disk.paths() == ["/data/FORMAT.tmp"]
    file.fsync()
    watch.rename("/data/FORMAT.tmp", "/data/FORMAT")


def test_an_empty_temporary_file_needs_its_sync_as_well(watch: WatchFs) -> None:
    watch.open("/data/FORMAT.tmp", write=True, create=True).close()
    with pytest.raises(AssertionError, match="renamed before its fsync"):
        watch.rename("/data/FORMAT.tmp", "/data/FORMAT")


def test_a_temporary_file_emptied_again_needs_another_sync(watch: WatchFs) -> None:
    watch.open("/data/x.tmp", write=True, create=True).fsync()
    watch.open("/data/x.tmp", write=True, truncate=True).close()
    with pytest.raises(AssertionError, match="renamed before its fsync"):
        watch.rename("/data/x.tmp", "/data/x")


# Snapshots.


def test_an_old_snapshot_may_go_once_a_newer_one_is_durable(watch: WatchFs) -> None:
    save_snapshot(watch, 9)
    save_snapshot(watch, 10)
    watch.unlink(SNAPSHOT.format(9))
    watch.check()


def test_a_snapshot_removed_before_the_directory_sync_of_its_successor_is_caught(
    watch: WatchFs,
) -> None:
    save_snapshot(watch, 9)
    watch.open("/data/meta/snapshot.0010.bin.tmp", write=True, create=True).fsync()
    watch.rename("/data/meta/snapshot.0010.bin.tmp", SNAPSHOT.format(10))
    watch.listdir("/data/meta")
    with pytest.raises(AssertionError, match="before a newer snapshot was durable"):
        watch.unlink(SNAPSHOT.format(9))
    watch.sync_dir("/data/meta")
    watch.unlink(SNAPSHOT.format(9))


def test_the_newest_snapshot_never_goes(watch: WatchFs) -> None:
    save_snapshot(watch, 9)
    save_snapshot(watch, 10)
    with pytest.raises(AssertionError, match="before a newer snapshot was durable"):
        watch.unlink(SNAPSHOT.format(10))


def test_snapshots_of_an_earlier_run_count_once_they_were_listed(
    disk: SimDisk, watch: WatchFs
) -> None:
    disk.put(SNAPSHOT.format(9), b"")
    disk.put(SNAPSHOT.format(10), b"")
    watch.listdir("/data/meta")
    watch.unlink(SNAPSHOT.format(9))


# The hot and the cold tier.


def test_a_hot_segment_may_go_after_its_flip_is_durable(disk: SimDisk, watch: WatchFs) -> None:
    disk.put(HOT, b"x")
    disk.put(COLD, b"x")
    with pytest.raises(AssertionError, match="cold tier"):
        watch.unlink(HOT)
    watch.tier_flip_durable(HOT)
    watch.restart()
    watch.unlink(HOT)
    assert disk.paths() == [COLD]


def test_a_dropped_segment_may_go_from_both_tiers(disk: SimDisk, watch: WatchFs) -> None:
    disk.put(HOT, b"x")
    disk.put(COLD, b"x")
    watch.drop_durable(HOT)
    watch.unlink(HOT)
    watch.unlink(COLD)
    watch.check()


def test_a_segment_without_a_cold_copy_is_not_watched(disk: SimDisk, watch: WatchFs) -> None:
    disk.put(HOT, b"x")
    watch.unlink(HOT)
    watch.check()


def test_the_tier_rule_is_off_without_a_cold_directory(disk: SimDisk) -> None:
    disk.put(HOT, b"x")
    disk.put(COLD, b"x")
    WatchFs(disk).unlink(HOT)


# Failed syncs.


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
@pytest.mark.parametrize("op", ["pwrite", "truncate", "fallocate", "fdatasync", "fsync"])
def test_touching_a_wal_file_after_its_failed_sync_is_caught(
    watch: WatchFs, faults: FaultFs, sync: str, op: str
) -> None:
    file = new_wal(watch)
    faults.fail("*", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        getattr(file, sync)()
    arguments = {"pwrite": (b"x", 0), "truncate": (0,), "fallocate": (9,)}.get(op, ())
    with pytest.raises(AssertionError, match="after its failed sync"):
        getattr(file, op)(*arguments)
    with pytest.raises(AssertionError, match="after its failed sync"):
        getattr(watch.open(WAL, write=True), op)(*arguments)
    assert file.pread(6, 0) == b"header"
    assert file.size() == 4096
    file.close()


def test_a_wal_file_with_a_failed_sync_keeps_its_name_and_bytes(
    watch: WatchFs, faults: FaultFs
) -> None:
    file = new_wal(watch)
    faults.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()
    with pytest.raises(AssertionError, match="unlink of"):
        watch.unlink(WAL)
    with pytest.raises(AssertionError, match="rename of"):
        watch.rename(WAL, WAL + ".old")
    with pytest.raises(AssertionError, match="truncate of"):
        watch.open(WAL, write=True, truncate=True)


def test_a_wal_file_prepared_under_another_name_is_watched_as_what_it_became(
    watch: WatchFs, faults: FaultFs
) -> None:
    file = watch.open("/data/wal/wal-spare.tmp", write=True, create=True)
    file.fsync()
    watch.rename("/data/wal/wal-spare.tmp", WAL)
    watch.sync_dir("/data/wal")
    file.pwrite(b"frame", 0)
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 5)
    faults.fail("fdatasync", errno.EIO, path="*.log")
    with pytest.raises(OSError, match="Input/output"):
        file.fdatasync()
    with pytest.raises(AssertionError, match=r"pwrite of .*\.log after its failed sync"):
        file.pwrite(b"frame", 5)


def test_un_synced_bytes_and_names_move_along_with_their_directory(watch: WatchFs) -> None:
    watch.mkdirs("/data/topics/0000000A")
    watch.sync_dir("/data/topics")
    file = watch.open("/data/topics/0000000A/seg", write=True, create=True)
    watch.rename("/data/topics/0000000A", "/data/topics/0000000A.deleted")
    watch.sync_dir("/data/topics")
    moved = "/data/topics/0000000A.deleted/seg"
    with pytest.raises(AssertionError, match="is not durable"):
        watch.acked(moved, 1)
    watch.sync_dir("/data/topics/0000000A.deleted")
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(moved, 1)
    file.fsync()
    watch.acked(moved, 1)


def test_other_files_may_be_synced_again_after_a_failure(watch: WatchFs, faults: FaultFs) -> None:
    file = watch.open("/data/x", write=True, create=True)
    faults.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()
    file.pwrite(b"x", 0)
    file.fsync()
    watch.check()


def test_a_new_run_may_repair_the_file_of_the_last_one(watch: WatchFs, faults: FaultFs) -> None:
    file = new_wal(watch)
    faults.fail("fdatasync", errno.EIO)
    file.pwrite(b"frame", 6)
    with pytest.raises(OSError, match="Input/output"):
        file.fdatasync()
    watch.restart(power_lost=False)
    with pytest.raises(AssertionError, match="before its sync"):
        watch.acked(WAL, 11)
    repair = watch.open(WAL, write=True)
    repair.truncate(6)
    repair.fsync()
    watch.acked(WAL, 6)


def test_after_a_power_cut_what_is_there_is_durable(disk: SimDisk, watch: WatchFs) -> None:
    watch.open(WAL, write=True, create=True).pwrite(b"frame", 0)
    disk.crash(0, "all", names="all")
    watch.restart()
    watch.acked(WAL, 5)


# The watcher itself.


def test_an_objection_swallowed_by_the_product_is_found_at_the_end(watch: WatchFs) -> None:
    file = new_wal(watch)
    file.pwrite(b"frame", 6)
    for _ in range(2):
        with pytest.raises(AssertionError):
            watch.acked(WAL, 11)
    file.fsync()
    with pytest.raises(AssertionError, match="before its sync; acked"):
        watch.check()


def test_watching_adds_no_call_that_could_fail(faults: FaultFs, watch: WatchFs) -> None:
    save_snapshot(watch, 1)
    watch.mkdirs("/data/topics/0000000A")
    watch.rmdir("/data/topics/0000000A")
    ops = [call.op for call in faults.trace]
    assert ops == ["open", "pwrite", "fsync", "rename", "sync_dir", "mkdirs", "rmdir"]


def test_the_real_disk_can_be_watched(tmp_path: Path) -> None:
    fs: Fs = WatchFs(FaultFs(RealFs()))
    file = fs.open(str(tmp_path / "a.tmp"), write=True, create=True)
    file.pwrite(b"x", 0)
    with pytest.raises(AssertionError, match="renamed before its fsync"):
        fs.rename(str(tmp_path / "a.tmp"), str(tmp_path / "a"))
    file.close()

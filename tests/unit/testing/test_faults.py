"""FaultFs spoils exactly the calls it was told to, and passes the others on."""

import errno
import threading
from functools import partial

import pytest

from topics.storage.fs import File, write_all
from topics.testing import FaultFs, FsCall, Op, PowerOff, SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.put("/data/log", b"abcdef")
    disk.put("/data/other", b"abcdef")
    return disk


@pytest.fixture
def fs(disk: SimDisk) -> FaultFs:
    return FaultFs(disk)


def call(fs: FaultFs, op: Op) -> None:
    """One call of each kind, through the seam."""
    if op in ("open", "lock", "listdir", "sync_dir", "mkdirs", "rmdir", "unlink", "rename"):
        getattr(fs, op)(*{"rename": ("/data/log", "/data/x")}.get(op, (PATHS.get(op, "/data"),)))
        return
    file = FaultFs.open(fs, "/data/log", write=True)
    try:
        getattr(file, op)(*ARGUMENTS.get(op, ()))
    finally:
        file.close()


PATHS: dict[str, str] = {"open": "/data/log", "unlink": "/data/log", "lock": "/l", "rmdir": "/e"}
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "pread": (1, 0),
    "pwrite": (b"x", 0),
    "truncate": (1,),
    "fallocate": (9,),
}
OPS: tuple[Op, ...] = (
    "open",
    "pread",
    "pwrite",
    "truncate",
    "fallocate",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "rmdir",
    "mkdirs",
    "listdir",
    "sync_dir",
    "lock",
)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_any_operation_can_fail_with_any_error_and_then_leaves_the_disk_alone(
    disk: SimDisk, fs: FaultFs, op: Op, code: int
) -> None:
    disk.mkdirs("/e")
    before = disk.contents()
    rule = fs.fail(op, code)
    with pytest.raises(OSError, match=r".") as caught:
        call(fs, op)
    assert caught.value.errno == code
    assert disk.contents() == before
    assert rule.hits == 1
    assert fs.count(op) == 1
    call(fs, op)
    assert (rule.hits, fs.count(op)) == (1, 2)


def test_the_nth_matching_call_fails_and_only_that_one(fs: FaultFs) -> None:
    fs.fail("pwrite", errno.EIO, nth=3, path="*/log")
    log = fs.open("/data/log", write=True)
    other = fs.open("/data/other", write=True)
    outcomes = [_fails(log), _fails(log), _fails(other), _fails(other), _fails(log), _fails(log)]
    assert outcomes == [False, False, False, False, True, False]


def test_always_fails_the_nth_call_and_every_later_one(fs: FaultFs) -> None:
    fs.fail("pwrite", errno.EIO, nth=2, always=True)
    file = fs.open("/data/log", write=True)
    assert [_fails(file) for _ in range(4)] == [False, True, True, True]
    fs.clear()
    assert not _fails(file)


def _fails(file: File) -> bool:
    try:
        file.pwrite(b"x", 0)
    except OSError:
        return True
    return False


def test_any_call_can_be_failed_by_its_number(fs: FaultFs) -> None:
    fs.fail("*", errno.EIO, nth=3)
    file = fs.open("/data/log", write=True)
    file.pwrite(b"x", 0)
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()


def test_a_short_write_takes_half_or_the_bytes_asked_for(disk: SimDisk, fs: FaultFs) -> None:
    fs.fail("pwrite", "short")
    fs.fail("pwrite", "short", nth=2, keep=1)
    file = fs.open("/data/log", write=True)
    assert file.pwrite(b"WWWW", 0) == 2
    assert file.pwrite(b"YYYY", 2) == 1
    assert file.pwrite(b"ZZZ", 3) == 3
    assert disk.peek("/data/log") == b"WWYZZZ"


def test_a_zero_call_moves_nothing(disk: SimDisk, fs: FaultFs) -> None:
    fs.fail("pwrite", "zero")
    fs.fail("pread", "zero")
    file = fs.open("/data/log", write=True)
    assert file.pwrite(b"WWWW", 0) == 0
    assert file.pread(4, 0) == b""
    assert file.pread(4, 0) == b"abcd"
    assert disk.peek("/data/log") == b"abcdef"


@pytest.mark.parametrize("fault", ["short", "zero"])
def test_only_reads_and_writes_can_be_partial(fs: FaultFs, fault: str) -> None:
    with pytest.raises(ValueError, match="needs pread or pwrite"):
        fs.fail("fsync", "short" if fault == "short" else "zero")


def test_a_stalled_call_waits_until_released_and_then_succeeds(disk: SimDisk, fs: FaultFs) -> None:
    stall = fs.fail("fdatasync", "stall", path="*/log")
    file = fs.open("/data/log", write=True)
    file.pwrite(b"X", 0)
    worker = threading.Thread(target=file.fdatasync)
    worker.start()
    assert stall.reached.wait(60)
    assert disk.peek_durable("/data/log") == b"abcdef"
    fs.open("/data/other", write=True).fdatasync()
    stall.release()
    worker.join(60)
    assert not worker.is_alive()
    assert disk.peek_durable("/data/log") == b"Xbcdef"


def test_clearing_the_rules_releases_a_stalled_call(fs: FaultFs) -> None:
    stall = fs.fail("fsync", "stall")
    worker = threading.Thread(target=fs.open("/data/log", write=True).fsync)
    worker.start()
    assert stall.reached.wait(60)
    fs.clear()
    worker.join(60)
    assert not worker.is_alive()


def test_a_stall_nobody_releases_fails_instead_of_hanging(
    fs: FaultFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.testing.faults.STALL_LIMIT_S", 0.0)
    fs.fail("listdir", "stall")
    with pytest.raises(AssertionError, match="never released"):
        fs.listdir("/data")


def test_the_trace_lists_every_call_in_order(fs: FaultFs) -> None:
    file = fs.open("/data/log", write=True)
    write_all(file, b"x", 0)
    file.fdatasync()
    file.close()
    fs.rename("/data/log", "/data/new")
    assert fs.exists("/data/new")
    assert fs.size("/data/new") == 6
    assert len(fs.boot_id()) == 16
    fs.sync_dir("/data")
    assert fs.trace == [
        FsCall("open", "/data/log"),
        FsCall("pwrite", "/data/log"),
        FsCall("fdatasync", "/data/log"),
        FsCall("rename", "/data/log"),
        FsCall("sync_dir", "/data"),
    ]
    assert fs.count("rename", "*/log") == 1
    assert fs.count("rename", "*/other") == 0


def test_a_rule_goes_by_the_name_a_file_has_at_that_moment(fs: FaultFs) -> None:
    file = fs.open("/data/log", write=True)
    fs.fail("fsync", errno.EIO, path="/data/new/log")
    fs.rename("/data/log", "/data/log.1")
    file.fsync()
    fs.rename("/data", "/moved")
    fs.mkdirs("/data")
    fs.rename("/moved", "/data/new")
    fs.rename("/data/new/log.1", "/data/new/log")
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()
    fs.unlink("/data/new/log")
    assert fs.trace[-2:] == [FsCall("fsync", "/data/new/log"), FsCall("unlink", "/data/new/log")]


def test_a_sweep_can_cut_the_power_before_each_call(disk: SimDisk) -> None:
    def scenario(fs: FaultFs) -> None:
        file = fs.open("/data/log", write=True)
        file.pwrite(b"X", 0)
        file.fsync()
        fs.unlink("/data/other")
        fs.sync_dir("/data")

    rehearsal = FaultFs(disk.clone())
    scenario(rehearsal)
    outcomes = []
    for number in range(1, len(rehearsal.trace) + 1):
        run = disk.clone()
        fs = FaultFs(run)
        fs.stop_before(number, partial(run.crash, 0, "none", names="none"))
        with pytest.raises(PowerOff):
            scenario(fs)
        with pytest.raises(PowerOff):
            fs.exists("/data")
        with pytest.raises(PowerOff):
            fs.unlink("/data/log")
        outcomes.append((run.peek("/data/log")[:1], len(run.paths())))
    assert outcomes == [(b"a", 2), (b"a", 2), (b"a", 2), (b"X", 2), (b"X", 2)]

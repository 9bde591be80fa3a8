"""An erasure that is cut off or refused by the disk at any step: nothing else is lost, it goes on
after a restart, and then no byte of what was erased is on the disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any

import pytest
from tests.crash.fault_scenes import MODES, sampled
from tests.crash.stores import DATA_DIR, contents, opened

import topics
from topics.embedded import Log
from topics.engine.upkeep.erasing import Eraser
from topics.engine.upkeep.trimming import Trimmer
from topics.errors import InvalidRequest, TopicsError
from topics.storage import crashpoints
from topics.storage.erasures import ErasureLedger
from topics.storage.wal.inline import InlineCommitter
from topics.testing import CrashMode, FaultFs, Op, PowerOff, SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")

COLD_DIR = "/cold"
SECRET = b"secret-of-user-7"
POINTS = sorted(point for point in crashpoints.NAMES if point.startswith("erase."))


def settings(cold: bool) -> dict[str, Any]:
    return {"cold_dir": COLD_DIR, "hot_retain_segments": 1} if cold else {}


def write(log: Log, topic: str, first: int, count: int) -> None:
    for n in range(first, first + count):
        mine = n % 3 == 0
        text = f"{SECRET.decode()}-{n}" if mine else f"something-else-entirely-{n}"
        log.append(
            topic,
            {"data": {"text": text}, "tag": f"user-{7 if mine else 8}", "meta": {"n": n}},
            idempotency_key=f"{'secret-of-user-7-key' if mine else 'key'}-{n}",
        )


@cache
def prepared(cold: bool) -> SimDisk:
    """Sealed segments, one that grows, a tail in the log; and a topic that must not change."""
    disk = SimDisk()
    with opened(disk, **settings(cold)) as log:
        for topic in "t", "other":
            log.create(topic, durability="fsync")
        write(log, "t", 0, 20)
        log.append("other", [{"data": {"n": n}} for n in range(9)])
        for _ in range(3):
            log.checkpoint()
            log.append("other", {"data": 0})
        log.maintain()
        write(log, "t", 20, 5)
        log.checkpoint()
        write(log, "t", 25, 3)
    disk.settle()
    return disk


def kept(log: Log) -> dict[str, list[object]]:
    return {
        name: [(record.seq, record.data) for record in found.records.values()]
        for name, found in contents(log).items()
    }


@cache
def wanted(cold: bool) -> dict[str, list[object]]:
    with opened(prepared(cold).clone(), **settings(cold)) as log:
        before = kept(log)
    before["t"] = [entry for entry in before["t"] if "secret" not in str(entry)]
    return before


def places_with_secrets(disk: SimDisk) -> list[str]:
    return [path for path, data in disk.contents().items() if SECRET in data]


def assert_erased_after_restart(disk: SimDisk, cold: bool) -> None:
    """Whatever the crash left: others' records are whole, and the erasure comes to its end."""
    begun = ErasureLedger(disk, DATA_DIR).begun()
    with opened(disk, **settings(cold)) as log:
        others = {name: found for name, found in kept(log).items() if name != "t"}
        assert others == {name: found for name, found in wanted(cold).items() if name != "t"}
        mine = kept(log)["t"]
        assert [entry for entry in mine if "secret" not in str(entry)] == wanted(cold)["t"]
        if begun:
            assert mine == wanted(cold)["t"]
            log._do(lambda engine: engine.erase_now())
            assert places_with_secrets(disk) == []
        log.erase("t", match="user-7")
        assert kept(log) == wanted(cold)
    assert places_with_secrets(disk) == []
    assert ErasureLedger(disk, DATA_DIR).begun() == []
    assert not ErasureLedger(disk, DATA_DIR).receipts()[-1].scan.found
    with opened(disk, **settings(cold)) as log:
        assert kept(log) == wanted(cold)
        assert log.audit("t").deleted == 10


@pytest.mark.parametrize("cold", [False, True])
def test_an_erasure_leaves_no_byte_and_says_so(cold: bool) -> None:
    disk = prepared(cold).clone()
    assert places_with_secrets(disk)
    with opened(disk, **settings(cold)) as log:
        receipt = log.erase("t", match="user-7").receipt
        assert receipt is not None
        assert kept(log) == wanted(cold)
        assert places_with_secrets(disk) == []
        assert receipt["scan"]["found"] == []
        assert receipt["scan"]["probes"] == 10
        assert receipt["rewritten"]
        assert "user-7" not in str(receipt)
    assert_erased_after_restart(disk, cold)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_er01_an_erasure_cut_off_at_any_step_ends_after_a_restart(point: str, cold: bool) -> None:
    for seed, mode in enumerate(MODES):
        disk = prepared(cold).clone()
        log = opened(disk.mount(), **settings(cold))
        with stop_at(point, partial(disk.crash, seed, mode), nth=1) as stop:
            log.erase("t", match="user-7")
        assert stop.reached
        assert_erased_after_restart(disk, cold)


def calls_of_an_erasure(cold: bool) -> int:
    faults = FaultFs(prepared(cold).clone())
    log = opened(faults, **settings(cold))
    before = len(faults.trace)
    log.erase("t", match="user-7")
    return len(faults.trace) - before


def cut_off(cold: bool, call: int, mode: CrashMode) -> SimDisk:
    disk = prepared(cold).clone()
    faults = FaultFs(disk.mount())
    log = opened(faults, **settings(cold))
    faults.stop_before(len(faults.trace) + call, partial(disk.crash, call, mode))
    with pytest.raises(PowerOff):
        log.erase("t", match="user-7")
    return disk


@pytest.mark.parametrize("cold", [False, True])
def test_er02_a_power_cut_before_any_file_call_loses_nothing_else(cold: bool) -> None:
    for number, call in enumerate(sampled(calls_of_an_erasure(cold))):
        assert_erased_after_restart(cut_off(cold, call, MODES[number % len(MODES)]), cold)


def test_er04_a_copy_that_differs_from_what_was_written_is_not_used() -> None:
    for part in "data", "idx":
        disk = prepared(False).clone()
        with opened(disk) as log:

            def spoil(point: str, disk: SimDisk = disk, part: str = part) -> None:
                if point == "erase.synced":
                    (path, *_) = sorted(p for p in disk.paths() if p.endswith(f"-1.{part}"))
                    disk.flip(path, 30)

            with crashpoints.installed(spoil), pytest.raises(OSError, match=r"written|intact"):
                log.erase("t", match="user-7")
            assert kept(log) == wanted(False)
            assert [path for path in disk.paths() if "-1." in path] == []
        assert_erased_after_restart(disk, False)


def test_er05_a_rotten_record_stays_announced_and_is_put_aside() -> None:
    disk = prepared(False).clone()
    path = next(p for p in sorted(disk.paths()) if "00000001/seg-" in p and p.endswith(".data"))
    disk.flip(path, disk.peek(path).index(b"something-else-entirely-1"))
    with opened(disk) as log:
        before = contents(log)["t"]
        assert before.announces(2)
        log.erase("t", match="user-7")
        after = contents(log)["t"]
        assert [gap.to_dict() for gap in after.tombstones] == [
            gap.to_dict() for gap in before.tombstones
        ]
    assert [p for p in disk.paths() if "/quarantine/" in p and p.endswith("-2.frame")]
    assert places_with_secrets(disk) == []


def test_a_topic_dropped_during_its_erasure_goes_as_a_whole_and_gets_its_receipt() -> None:
    disk = prepared(False).clone()
    with opened(disk) as log, stop_at("erase.begun", disk.kill):
        log.erase("t", match="user-7")
    disk = disk.clone()
    with opened(disk) as log:
        log.drop("t")
        log._do(lambda engine: engine.erase_now())
        (state,) = log.erasures("t")
        assert state.receipt is not None
        assert state.receipt["rewritten"] == []
        assert len(state.receipt["erased"]) == 10
    assert places_with_secrets(disk) == []


def test_a_receipt_names_what_the_erasure_cannot_reach() -> None:
    disk = SimDisk()
    with opened(disk) as log:
        log.create("t", durability="fsync")
        log.route("copy", source="t", dest="copied")
        log.set_cursor("t", "lake.orders", 0)
        for n in range(3):
            log.append("t", {"data": f"{n}" * 700_000, "tag": f"user-{n}"})
        log.checkpoint()
        receipt = log.erase("t", match="user-1").receipt
        assert receipt is not None
        assert receipt["rewritten"][0]["bytes"] > 700_000
        assert receipt["unreached"] == [
            "topic copied, to which router copy copies",
            "the table of cursor lake.orders: run lake sync, then lake maintain",
            "backups made before: a restore applies this receipt",
        ]
        assert (log.state("t").count, log.audit("t").deleted) == (2, 1)


def test_a_log_in_memory_has_nothing_to_erase() -> None:
    with topics.open() as log:
        log.append("t", {"data": 1})
        with pytest.raises(InvalidRequest, match="use delete"):
            log.erase("t", before_seq=2)
        assert log.erasures("t") == []


def test_a_receipt_that_was_changed_is_told() -> None:
    disk = prepared(False).clone()
    with opened(disk) as log:
        log.erase("t", match="user-7")
        disk.flip(f"{DATA_DIR}/meta/erasures/{1:016d}.json", 30)
        with pytest.raises(TopicsError, match="ledger of erasures does not hold"):
            log.erasures("t")
        with pytest.raises(TopicsError, match="ledger of erasures does not hold"):
            log.erase("t", before_seq=2)


def nothing(*_: object, **__: object) -> None: ...


def no_op(*_: object, **__: object) -> Iterator[None]:
    yield from ()


BUGS: dict[str, tuple[type, str, object]] = {
    "the log goes on in the same file": (InlineCommitter, "rotate", nothing),
    "the growing segment is not sealed": (Eraser, "_seal_growing", nothing),
    "no segment is written anew": (Eraser, "_rewrite", no_op),
    "keys are not forgotten": (Eraser, "_forget_keys", no_op),
    "old files are not waited for": (Eraser, "_let_old_files_go", no_op),
    "old files are not noted": (Trimmer, "replaced", nothing),
}


@pytest.mark.parametrize("bug", BUGS)
def test_an_erasure_with_a_planted_bug_is_found_out(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = prepared(False).clone()
    wanted(False)
    monkeypatch.setattr(*BUGS[bug])
    with opened(disk) as log, suppress(TopicsError):
        write(log, "t", 30, 1)
        receipt = log.erase("t", match="user-7").receipt
        assert receipt is not None
        # Keys are no part of the records: the search of the product does not know them.
        assert receipt["scan"]["found"] or bug in (
            "keys are not forgotten",
            "old files are not noted",
        )
    assert places_with_secrets(disk)


FAULTS: list[Op] = ["open", "pwrite", "fdatasync", "fsync", "rename", "unlink", "sync_dir", "pread"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("op", FAULTS)
def test_er03_an_erasure_that_the_disk_refuses_is_told_and_ends_later(op: Op, error: int) -> None:
    for nth in (1, 3, 9):
        disk = prepared(False).clone()
        faults = FaultFs(disk.mount())
        log = opened(faults)
        faults.fail(op, error, path="*/topics/*", nth=nth)
        try:
            log.erase("t", match="user-7")
        except (TopicsError, OSError):
            faults.clear()
            begun = ErasureLedger(disk, DATA_DIR).begun()
            assert kept(log)["other"] == wanted(False)["other"]
            if begun:
                log._do(lambda engine: engine.erase_now())
                assert places_with_secrets(disk) == []
        disk.kill()
        assert_erased_after_restart(disk, False)

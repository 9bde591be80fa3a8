"""Records that rot in the log under a running program: announced, and in nobody's way."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from tests.crash.stores import DATA_DIR, Contents, contents, opened

from topics.embedded import Log
from topics.engine.recovery.verification import verify
from topics.storage.crashpoints import installed
from topics.storage.findings import Report
from topics.storage.sources import WalSource
from topics.testing import SimDisk

LIVE = [1, 2, 4, 5]
WORDS = b"the third"

open_log = partial(opened, wal_shards=1)


def place(disk: SimDisk, suffix: str) -> tuple[str, int]:
    """Where the bytes of the third record lie, in a file of this kind."""
    for path in disk.paths():
        if path.endswith(suffix) and (at := disk.peek(path).find(WORDS[1:])) >= 0:
            return path, at - 1
    raise AssertionError(f"no *{suffix} holds the record")


def filled(disk: SimDisk) -> Log:
    """Five records of an earlier run: not in a segment yet, and no longer in memory."""
    log = open_log(disk)
    log.create("t", durability="fsync")
    words = [b"the first", b"the second", WORDS, b"the fourth", b"the fifth"]
    for number, text in enumerate(words):
        log.append("t", {"data": text.decode(), "tag": f"tag-{number % 2}"})
    disk.kill()
    return open_log(disk)


def give_up(point: str) -> None:
    if point == "ckpt.idx":
        raise OSError(errno.EIO, "not now")


def check(shown: Contents, *, beyond: int = 0) -> None:
    """Everything is there but the third record, which is announced alone."""
    assert sorted(shown.records) == [*LIVE, *range(6, 6 + beyond)]
    assert [(gap.gap_from, gap.gap_to) for gap in shown.tombstones] == [(3, 3)]


def test_a_record_that_rots_in_the_log_does_not_keep_checkpoints_from_completing() -> None:
    disk = SimDisk()
    log = filled(disk)
    disk.flip(*place(disk, ".log"))
    check(contents(log)["t"])
    log.checkpoint()
    check(contents(log)["t"])
    for number in range(2):  # the second lets go of the log below the first
        log.append("t", {"data": number})
        log.checkpoint()
    check(contents(log)["t"], beyond=2)
    with pytest.raises(AssertionError, match="no "):
        place(disk, ".log")
    log.close()
    disk.kill()
    with open_log(disk) as again:
        check(contents(again)["t"], beyond=2)
        again.delete("t", match="tag-0")
        assert sorted(contents(again)["t"].records) == [2, 4, 6, 7]


def test_what_is_left_of_a_rotten_record_is_put_aside_once_and_never_copied_on() -> None:
    disk = SimDisk()
    with filled(disk) as log:
        disk.flip(*place(disk, ".log"))
        for _ in range(2):
            with installed(give_up), pytest.raises(OSError, match="not now"):
                log.checkpoint()
        log.checkpoint()
    disk.kill()
    (kept,) = [path for path in disk.paths() if "/quarantine/" in path]
    assert kept.endswith("-3.frame")
    assert WORDS[1:] in disk.peek(kept)
    with pytest.raises(AssertionError, match="no "):
        place(disk, ".data")
    report = Report(disk)
    verify(report, DATA_DIR, None)
    named = [(finding.topic, finding.seq) for finding in report.damage if finding.seq]
    assert named == [("t", 3)]


def test_a_log_file_that_lost_its_end_costs_the_records_in_it_and_no_checkpoint() -> None:
    disk = SimDisk()
    log = filled(disk)
    path, at = place(disk, ".log")
    disk.put(path, disk.peek(path)[:at])
    log.checkpoint()
    shown = contents(log)["t"]
    assert sorted(shown.records) == [1, 2]
    assert {seq for seq in range(1, 6) if shown.announces(seq)} == {3, 4, 5}


def test_a_read_that_was_bad_only_once_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    log = filled(disk)
    pread, spoilt = WalSource.pread, list[int]()

    def bad_once(source: WalSource, offset: int, size: int) -> bytes:
        data = pread(source, offset, size)
        if WORDS in data and not spoilt:
            spoilt.append(offset)
            return data.replace(WORDS, b"?" * len(WORDS))
        return data

    monkeypatch.setattr(WalSource, "pread", bad_once)
    log.checkpoint()
    assert spoilt
    shown = contents(log)["t"]
    assert (sorted(shown.records), shown.tombstones) == ([1, 2, 3, 4, 5], [])
    log.close()

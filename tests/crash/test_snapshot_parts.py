"""Snapshots in parts: damaged, cut off, or built on files that went bad."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest
from tests.crash.fault_oracle import assert_same, check, dump
from tests.crash.fault_program import DATA_DIR, Book, Program
from tests.crash.fault_scenes import MODES, append, filled, refusal, snapshots, tail

from topics.engine.upkeep.snapshots import Track
from topics.storage import layout
from topics.storage.identity import PARTS_VERSION, SNAPSHOT_VERSION, decode_format
from topics.testing import SimDisk, stop_at

pytestmark = pytest.mark.usefixtures("small")

FORMAT = f"{DATA_DIR}/{layout.FORMAT}"


def parted(checkpoints: int = 4, records: int = 2) -> Program:
    """Both of the two newest snapshots are in parts, and there is something new to write."""
    program = filled()
    for _ in range(checkpoints):
        assert program.checkpoint()
        program.append("fsync", records, tag="t1")
        program.append("doomed")
        program.delete("disk", before=3)
    return program


def tracks(program: Program) -> tuple[Track, Track]:
    """The chains of the newest snapshot and of the one before."""
    assert program.engine.upkeep is not None
    found = program.engine.upkeep._checkpointer._snapshots
    assert found.newest is not None
    assert found.older is not None
    return found.newest, found.older


def paths(track: Track) -> list[str]:
    return [layout.snapshot_path(DATA_DIR, file.number) for file in track.files]


def test_two_chains_in_turn_share_no_file_and_only_their_files_stay() -> None:
    program = parted()
    newest, older = map(paths, tracks(program))
    assert len(newest) == len(older) == 3
    assert sorted(newest + older) == snapshots(program.disk)
    assert newest[-1] == snapshots(program.disk)[-1]
    program.checkpoint()
    assert len(tracks(program)[0].files) == 1, "a chain with many parts begins anew"
    assert paths(tracks(program)[1]) == newest
    assert len(snapshots(program.disk)) == 4
    program.disk.kill()
    check(program, "kill")


DAMAGE: dict[str, Callable[[SimDisk, str], object]] = {
    "flipped": lambda disk, path: disk.flip(path, 40),
    "cut short": lambda disk, path: disk.put(path, disk.peek(path)[:-20]),
    "gone": lambda disk, path: disk.mount().unlink(path),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_sn18_damage_to_any_file_of_a_chain_leaves_the_other_one(damage: str) -> None:
    program = parted()
    append(program)
    disk = program.disk
    chains = list(map(paths, tracks(program)))
    disk.kill()
    expected = dump(Program(disk.clone()))
    for path in [*chains[0], *chains[1]]:
        spoilt = disk.clone()
        DAMAGE[damage](spoilt, path)
        assert_same(expected, dump(Program(spoilt, Book())), path)
        if path in chains[0]:
            assert chains[0][-1] not in spoilt.paths(), "it was set aside"
            assert damage == "gone" or path not in spoilt.paths()
        spoilt.kill()
        check(program, "kill", disk=spoilt)


def test_sn18_a_part_is_not_read_on_top_of_another_file() -> None:
    program = parted()
    disk = program.disk
    newest, older = map(paths, tracks(program))
    disk.kill()
    expected = dump(Program(disk.clone()))
    disk.put(newest[0], disk.peek(older[0]))
    assert_same(expected, dump(Program(disk, Book())), "a whole snapshot of the other chain")
    disk.kill()
    check(program, "kill")


def test_sn19_a_whole_snapshot_is_not_copied_from_files_that_went_bad() -> None:
    for victim in range(3):
        program = parted()
        disk = program.disk
        old = snapshots(disk)
        disk.flip(paths(tracks(program)[1])[victim], 60)
        assert not program.checkpoint(), "the chain that begins anew is found out"
        assert snapshots(disk) == old
        append(program)
        assert program.checkpoint(), "it is copied from the other one"
        tail(program)
        assert program.checkpoint()
        disk.kill()
        check(program, "kill")


def test_sn19_with_both_chains_bad_everything_is_captured_again() -> None:
    program = parted()
    for track in tracks(program):
        program.disk.flip(paths(track)[0], 60)
    assert not program.checkpoint()
    assert not program.checkpoint()
    append(program)
    for _ in range(3):
        assert program.checkpoint()
    program.disk.kill()
    check(program, "kill")


POINTS = ("snap.tmp", "snap.synced", "snap.renamed", "snap.dirsynced", "snap.pruned", "ckpt.trim")


@pytest.mark.parametrize("point", POINTS)
def test_sn20_a_cut_around_a_part_or_a_merge_leaves_the_old_or_the_new_one(point: str) -> None:
    for seed, mode in enumerate(MODES):
        for checkpoints in (1, 4):  # the next one writes a part, or begins a chain anew
            program = parted(checkpoints)
            with stop_at(point, partial(program.disk.crash, seed, mode)) as stop:
                program.checkpoint()
            assert stop.reached
            check(program, "power")


def test_sn21_with_both_chains_damaged_a_trimmed_log_is_refused() -> None:
    program = parted(records=16)
    newest, older = map(paths, tracks(program))
    program.disk.kill()
    for victims in ((newest[0], older[0]), (newest[-1], older[-1]), (newest[0], older[2])):
        disk = program.disk.clone()
        for path in victims:
            disk.flip(path, 40)
        assert refusal(disk) == "metadata_lost"
    check(program, "kill")


def version(disk: SimDisk) -> int:
    return decode_format(disk.peek(FORMAT), file=FORMAT).snapshot


def test_sn22_the_store_says_that_it_has_parts_before_it_has_one() -> None:
    program = filled()
    assert version(program.disk) == SNAPSHOT_VERSION
    rule = program.faults.fail("rename", errno.EIO, path=f"{FORMAT}*")
    old = snapshots(program.disk)
    assert not program.checkpoint()
    assert rule.hits == 1
    assert snapshots(program.disk) == old, "no part without it"
    for seed, mode in enumerate(MODES):
        disk = program.disk.clone()
        disk.crash(seed, mode)
        check(program, "power", disk=disk)
    assert program.checkpoint()
    assert version(program.disk) == PARTS_VERSION
    program.disk.crash(1, "none")
    check(program, "power")


def test_sn23_a_start_goes_on_with_both_chains_if_it_knows_what_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topics.engine.upkeep.snapshots.MOST_PARTS", 100)
    program = parted()
    for end in ("close", "kill", "close"):
        before = snapshots(program.disk)
        if end == "close":
            program.close()
        else:
            program.disk.kill()
        program = Program(program.disk, program.book, wal_shards=2)
        program.append("fsync", 1)
        program.create(f"made after {end}")
        assert program.checkpoint()
        program.drop(f"made after {end}")
        assert program.checkpoint()
        assert set(before) < set(snapshots(program.disk)), "files of the run before are kept"
    program.disk.kill()
    check(program, "kill")


def test_sn23_a_start_with_other_shards_begins_both_chains_anew() -> None:
    program = parted()
    program.close()
    before = snapshots(program.disk)
    program = Program(program.disk, program.book, wal_shards=4)
    program.append("fsync")
    assert program.checkpoint()
    assert program.checkpoint()
    assert not set(before) & set(snapshots(program.disk))
    program.disk.kill()
    check(program, "kill")

"""A read-only view beside an owner that checkpoints, trims, moves and drops under its feet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.crash.fault_oracle import check, complaints
from tests.crash.fault_program import DATA_DIR, Book, Program, opening
from tests.crash.fault_scenes import append, fill, sampled, settle_segments, tail
from tests.crash.stores import Contents, contents

from topics.embedded.view import View
from topics.errors import RefusedToOpen, TopicNotFound
from topics.storage.fs import Fs
from topics.testing import FaultFs, ManualClock, Op, Rule, SimDisk

pytestmark = pytest.mark.usefixtures("small")


class BusyFs(FaultFs):
    """A file system on which something happens right after a certain call."""

    def __init__(self, inner: Fs, call: int = 0, meanwhile: Callable[[], object] = list) -> None:
        super().__init__(inner)
        self._call = call
        self._meanwhile = meanwhile

    def check(self, op: Op, path: str) -> Rule | None:
        rule = super().check(op, path)
        if len(self.trace) == self._call:
            self._meanwhile()
        return rule


def owned(shards: int) -> Program:
    program = Program(SimDisk(), wal_shards=shards)
    fill(program)
    settle_segments(program)
    tail(program)
    append(program)
    program.disk.kill()
    return program


def work_hard(owner: Program) -> None:
    """Rotations, checkpoints that trim, moved and dropped segments, a dropped topic."""
    for _ in range(3):
        append(owner)
        owner.delete("fsync", match="x")
        owner.checkpoint()
    owner.delete("fsync", before=9)
    owner.checkpoint()
    owner.maintain()
    owner.drop("doomed")
    owner.checkpoint()
    owner.checkpoint()


def in_doubt(before: Book, after: Book) -> Book:
    """What the owner did meanwhile may be seen or not."""
    doubtful = after.copy()
    for topic, lives in doubtful.lives.items():
        life, known = lives[-1], before.lives[topic][-1]
        life.floor = known.floor
        for op in (*life.writes[len(known.writes) :], *life.removals[len(known.removals) :]):
            op.state = "sent"
        if life.dropped is not None:
            life.dropped.state = "sent"
    return doubtful


def seen(view: View) -> dict[str, Contents]:
    """Everything in a view; a topic may go while it is looked at."""
    try:
        return contents(view)
    except TopicNotFound:
        return contents(view)


@pytest.mark.parametrize("shards", [1, 2])
def test_st07_a_view_opened_while_the_owner_works_is_consistent(shards: int) -> None:
    start = owned(shards)
    counting = BusyFs(start.disk.clone())
    View(counting, DATA_DIR, opening(ManualClock()))
    for call in sampled(len(counting.trace)):
        disk = start.disk.clone()
        owner = Program(disk, start.book.copy(), wal_shards=shards)
        before = owner.book.copy()
        fs = BusyFs(disk.mount(), call, lambda owner=owner: work_hard(owner))  # type: ignore[misc]
        view = View(fs, DATA_DIR, opening(ManualClock()))
        problems = list(complaints(in_doubt(before, owner.book), seen(view), "kill"))
        assert not problems, "\n".join([f"at call {call}", *problems])
        owner.watch.check()
        assert owner.append("fsync"), "the owner is not disturbed"
    disk.kill()
    check(owner, "kill")


@pytest.mark.parametrize("shards", [1, 2])
def test_st07_a_view_whose_files_were_let_go_looks_again(shards: int) -> None:
    start = owned(shards)
    owner = Program(start.disk, start.book, wal_shards=shards)
    before = owner.book.copy()
    view = View(owner.disk.mount(), DATA_DIR, opening(ManualClock()))
    work_hard(owner)
    problems = list(complaints(in_doubt(before, owner.book), seen(view), "kill"))
    assert not problems, "\n".join(problems)
    view.refresh()
    assert not list(complaints(owner.book, seen(view), "kill"))
    owner.disk.kill()
    check(owner, "kill")


def test_st07_real_damage_is_refused_at_once() -> None:
    start = owned(1)
    newest = max(path for path in start.disk.paths() if path.endswith(".log"))
    start.disk.unlink(newest)
    fs = BusyFs(start.disk.mount())
    with pytest.raises(RefusedToOpen) as refused:
        View(fs, DATA_DIR, opening(ManualClock()))
    assert refused.value.reason == "wal_missing"
    newest = max(path for path in start.disk.paths() if "/snapshot." in path)
    assert fs.count("open", newest) == 1, "nothing changed: there is no use in trying again"

"""Erasures between other calls: what their notes say, and in which order their receipts come."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engine.builders import Store

from topics.core.facts import Match
from topics.engine.effects import Io, Op, Pause, fulfil, resumed, run
from topics.engine.erasures import UNSEEN_COPY, ErasureBook
from topics.engine.upkeep.erasing import Eraser, ErasureWork
from topics.engine.upkeep.schedule import BACKOFF_MAX_MS, POLL_MS
from topics.engine.writes import deleting
from topics.storage.erasures import Begun
from topics.values import ErasureState

USER = Match("user-", is_prefix=True)


@pytest.fixture
def store() -> Store:
    made = Store()
    made.log.create("t", durability="fsync")
    for n in range(3):
        made.append("t", f"of somebody, number {n}", tag=f"user-{7 + n}")
    return made


def book(store: Store) -> ErasureBook:
    found = store.log._engine.erasing._book
    assert found is not None
    return found


def begin(store: Store, match: Match = USER) -> Op[ErasureState]:
    return store.log._engine.erasing.begin("t", before=None, match=match)


def until_deleted(store: Store, op: Op[Any]) -> Any:  # noqa: ANN401 - what an operation waits for
    topic = store.topic("t")
    wait = next(op)
    while topic.count:
        wait = fulfil(op, wait)
    assert isinstance(wait, Pause | Io)
    return wait


def until_noting(op: Op[Any]) -> Any:  # noqa: ANN401 - what an operation waits for
    """To the last step: writing the note."""
    wait = next(op)
    while not (isinstance(wait, Io) and "begin" in repr(wait.work)):
        wait = fulfil(op, wait)
    return wait


def end(op: Op[Any], wait: Any) -> None:  # noqa: ANN401 - what an operation waits for
    run(resumed(op, wait))


def note(store: Store) -> Begun:
    (begun,) = book(store).ledger.begun()
    return begun


def test_a_record_that_is_written_behind_the_delete_is_not_in_the_bound(store: Store) -> None:
    op = begin(store)
    wait = until_deleted(store, op)
    store.append("t", "later", tag="user-7")
    end(op, wait)
    assert (note(store).bound, note(store).erased) == (3, [(1, 3)])
    assert store.seqs("t") == [4]


def test_a_note_names_the_topic_that_was_deleted_from_though_another_has_its_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "STEP_TAGS", 1)  # a delete waits after its commit as well
    deleted_from = store.topic("t").id
    op = begin(store)
    wait = until_deleted(store, op)
    store.log.drop("t")
    store.log.create("t")
    end(op, wait)
    assert store.topic("t").id != deleted_from
    assert (note(store).topic_id, note(store).erased) == (deleted_from, [(1, 3)])
    store.log._do(lambda engine: engine.erase_now())
    assert [state.state for state in store.log.erasures("t")] == ["done"]


def test_a_topic_that_is_dropped_before_the_delete_leaves_it_to_its_successor(
    store: Store,
) -> None:
    op = begin(store)
    wait = next(op)
    store.log.drop("t")
    store.log.create("t")
    store.append("t", "of somebody in the new topic", tag="user-7")
    end(op, wait)
    assert (note(store).topic_id, note(store).deleted) == (store.topic("t").id, 1)


def test_receipts_come_in_the_order_of_their_numbers(store: Store) -> None:
    first, second = begin(store), begin(store)
    wait = until_noting(first)
    run(second)
    store.log._do(lambda engine: engine.erase_now())
    assert [state.state for state in store.log.erasures("t")] == ["running"]
    end(first, wait)
    store.log._do(lambda engine: engine.erase_now())
    assert [state.erasure for state in store.log.erasures("t")] == [1, 2]


def test_an_erasure_that_could_not_begin_holds_up_no_other(store: Store) -> None:
    op = begin(store)
    until_noting(op)
    with pytest.raises(OSError, match="no room"):
        op.throw(OSError("no room"))
    assert store.log.erase("t", match="user-7").erasure == 2


def test_a_damaged_note_is_told_and_the_others_go_on_under_numbers_of_their_own(
    store: Store,
) -> None:
    store.log.erase("t", match="user-7")
    for _ in range(2):
        run(begin(store))
    store.log.close()
    store.disk.flip(f"{book(store).ledger.directory}/{2:016d}.begun", 10)
    store.open()
    (warning,) = [text for text in store.log._engine.warnings if "erasure" in text]
    assert "cannot go on" in warning
    assert store.log.erase("t", match="user-7").erasure == 4
    assert [state.erasure for state in store.log.erasures("t")] == [1, 3, 4]


def test_a_receipt_names_no_topic_or_router_that_a_key_may_not_use(store: Store) -> None:
    store.log.route("t.copy", source="t", dest="hidden")
    store.log.route("t.other", source="t", dest="t.copied")
    store.log.erase("t", match="user-7")
    of_topic = store.log._engine.erasing.of_topic
    (limited,) = run(of_topic("t", allows=lambda name: name.startswith("t")))
    assert limited.receipt is not None
    assert limited.receipt["unreached"][:2] == [
        UNSEEN_COPY,
        "topic t.copied, to which router t.other copies",
    ]
    assert "hidden" not in str(limited)
    assert "hidden" in str(store.log.erasures("t"))


def test_a_receipt_names_the_dead_letter_topic_of_a_queue() -> None:
    store = Store()
    store.log.create("letters")
    store.put("t", durability="fsync", dead_letter="letters", type="queue")
    store.append("t", "of somebody")
    receipt = store.log.erase("t", before_seq=2).receipt
    assert receipt is not None
    assert "topic letters, which takes the dead letters of the queue" in receipt["unreached"]


def test_an_erasure_that_keeps_failing_is_tried_less_often_and_checkpoints_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fail(eraser: Eraser, checkpoint: Callable[[], Op[None]], _: object) -> Op[None]:
        del eraser
        tried.append(store.clock.now_ms())
        yield from checkpoint()
        raise OSError(errno.EIO, "a file could not be removed")

    monkeypatch.setattr(Eraser, "advance", fail)
    run(begin(store))
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    upkeep.hurry()
    for _ in range(30):
        upkeep.run()
        store.clock.advance(POLL_MS)
    waits = [later - sooner for sooner, later in pairwise(tried)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (POLL_MS, BACKOFF_MAX_MS)


def test_a_long_search_lets_checkpoints_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(begin(store))
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    searched: list[str] = []
    (running,) = book(store).ready()

    def checkpoint() -> Op[None]:
        searched.append(running.phase)
        yield from ()

    run(upkeep._eraser._search(running, ErasureWork(), checkpoint))
    assert len(searched) > 1


def test_without_samples_no_file_is_searched(store: Store) -> None:
    run(begin(store, Match("nobody", is_prefix=False)))
    store.log._do(lambda engine: engine.erase_now())
    (state,) = store.log.erasures("t")
    assert state.receipt is not None
    assert (state.receipt["scan"]["probes"], state.receipt["scan"]["files"]) == (0, 0)

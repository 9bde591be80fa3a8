"""Topics that were ephemeral for a while: what a restart keeps of each life."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.builders import Held, Store

from topics.batch import RecordBatch
from topics.errors import HeadMismatch, Internal, TopicNotEmpty
from topics.storage.crashpoints import installed
from topics.testing import FaultFs, SimDisk
from topics.topic_settings import Durability


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_seqs_go_on_when_an_ephemeral_topic_is_logged_after_a_crash(durability: Durability) -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1, 2)
    store.kill()
    head = store.log.state("a").head_seq
    assert head > 2
    store.log.configure("a", durability=durability)
    store.append("a", 3)
    store.kill()
    assert store.seqs("a") == [head + 1]
    assert store.log.audit("a").adds_up
    assert store.log.read("a").tombstone is not None


@pytest.mark.parametrize("between", [(), ("fsync",)])
def test_a_topic_that_was_ephemeral_skips_no_more_seqs_than_any_other(
    between: tuple[Durability, ...],
) -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1, 2)
    for durability in (*between, "disk"):
        store.log.configure("a", durability=durability)
    store.append("a", 3)
    store.kill()
    assert 3 <= store.log.state("a").head_seq <= 3 + 256
    store.append("a", 4)
    store.kill()
    assert len(store.seqs("a")) == 2


def test_a_key_does_not_answer_for_records_that_an_ephemeral_restart_lost() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.configure("a", durability="ephemeral")
    store.kill()
    assert not store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_bytes_that_an_ephemeral_restart_lost_leave_the_gauge() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.append("a", "payload")
    store.log.configure("a", durability="ephemeral")
    store.restart()
    assert store.kernel.catalog.bytes == 0


def test_a_key_of_an_ephemeral_write_is_gone_after_a_restart_in_another_class() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.configure("a", durability="disk")
    store.log.checkpoint()
    store.kill()
    assert not store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_a_key_outlives_a_checkpoint_taken_while_its_topic_was_ephemeral() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.configure("a", durability="ephemeral")
    store.log.checkpoint()
    store.log.configure("a", durability="disk")
    store.kill()
    assert store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_the_ledger_adds_up_when_an_idle_ephemeral_topic_is_logged_again() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.kill()
    store.restart()
    store.log.configure("a", durability="disk")
    store.kill()
    assert store.log.audit("a").adds_up


def after_an_ephemeral_life(durability: Durability, **caps: Any) -> Store:  # noqa: ANN401
    """Six logged records, then three that only memory has, all within the caps."""
    store = Store()
    store.log.create("a", durability=durability, **caps)
    store.append("a", *range(6))
    store.log.configure("a", durability="ephemeral", **caps)
    store.append("a", *range(3))
    store.log.configure("a", durability=durability, **caps)
    assert store.topic("a").count == 9
    return store


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_claim_gives_the_jobs_of_an_ephemeral_life_that_lie_between_logged_ones(
    durability: Durability,
) -> None:
    store = Store()
    for durability_then, jobs in ((durability, range(3)), ("ephemeral", [3]), (durability, [4])):
        store.put("a", type="queue", durability=durability_then)
        store.append("a", *jobs)
    claimed = store.log.queue("a", node="w").claim(5)
    assert [(job.seq, job.data) for job in claimed] == [(seq, seq - 1) for seq in range(1, 6)]


def write(store: Store, count: int) -> None:
    for value in range(count):
        store.append("a", value)


def write_with_keys(store: Store, count: int) -> None:
    for value in range(count):
        store.log.append("a", {"data": value}, idempotency_key=f"k{value}")


def forward(store: Store, count: int) -> None:
    store.log.create("source", durability="fsync")
    store.log.route("r", source="source", dest="a")
    store.append("source", *range(count))
    store.log.read("a")  # which brings it up to date


def commit_a_stage(store: Store, count: int) -> None:
    rows = [{"topic": "a", "data": value} for value in range(count)]
    store.log.stage("etl", 1, 0, rows)
    store.log.commit("etl", 1, [(0, 0)])


WAYS_TO_WRITE = [write, write_with_keys, forward, commit_a_stage]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("caps", [{"cap_records": 10}, {"cap_bytes": 10}])
@pytest.mark.parametrize("add", WAYS_TO_WRITE)
def test_what_a_cap_took_while_records_of_an_ephemeral_life_counted_stays_gone(
    durability: Durability, caps: dict[str, Any], add: Callable[[Store, int], None]
) -> None:
    store = after_an_ephemeral_life(durability, **caps)
    add(store, 4)
    before = store.log.audit("a")
    assert (before.live, before.evict_floor) == (10, 4)
    if durability == "fsync":
        store.lose_power()
    else:
        store.kill()
    after = store.log.audit("a")
    assert after.evict_floor == 4, "the floor does not go back"
    assert store.seqs("a") == [4, 5, 6], "up to the run of seqs that only memory had"
    assert after.live == 7
    assert after.adds_up


def test_a_commit_that_a_full_disk_held_up_takes_what_its_cap_takes_and_no_less_after_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mount, mounted = SimDisk.mount, list[FaultFs]()

    def with_faults(disk: SimDisk) -> FaultFs:
        mounted.append(FaultFs(mount(disk)))
        return mounted[-1]

    def fill_up(point: str) -> None:
        if point == "stage.committed":
            mounted[-1].fail("pwrite", errno.ENOSPC, path="*.log")

    monkeypatch.setattr(SimDisk, "mount", with_faults)
    store = after_an_ephemeral_life("fsync", cap_records=10)
    with installed(fill_up), pytest.raises(Internal, match="waits until the log takes"):
        commit_a_stage(store, 4)
    assert store.log.audit("a").evict_floor == 1, "nothing was taken for what is not there"
    store.clock.advance(1000)
    assert store.log.commit("etl", 1, [(0, 0)]).deduped
    assert store.log.audit("a").evict_floor == 4
    store.lose_power()
    assert store.log.audit("a").evict_floor == 4


def test_a_batch_larger_than_the_cap_leaves_its_end_after_an_ephemeral_life() -> None:
    store = after_an_ephemeral_life("fsync", cap_records=10)
    store.append("a", *range(15))
    assert store.seqs("a") == list(range(15, 25))
    store.kill()
    assert store.seqs("a") == list(range(15, 25))


@pytest.mark.parametrize("caps", [{"cap_records": 5}, {"cap_bytes": 5}])
def test_what_a_tighter_cap_took_while_an_ephemeral_life_counted_stays_gone(
    caps: dict[str, Any],
) -> None:
    store = after_an_ephemeral_life("fsync")
    store.log.configure("a", durability="fsync", **caps)
    before = store.log.audit("a")
    assert (before.live, before.evict_floor) == (5, 5)
    store.lose_power()
    assert store.log.audit("a").evict_floor == 5
    assert store.seqs("a") == [5, 6]
    assert store.log.audit("a").adds_up


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_repeated_write_takes_nothing_while_an_ephemeral_life_counts(
    durability: Durability,
) -> None:
    store = after_an_ephemeral_life(durability, cap_records=10)
    first = store.log.append("a", {"data": "new"}, idempotency_key="k")
    again = store.log.append("a", {"data": "new"}, idempotency_key="k")
    assert (again.deduped, again.last_seq) == (True, first.last_seq)
    assert store.seqs("a") == list(range(1, 11))


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_refused_write_takes_nothing_while_an_ephemeral_life_counts(
    durability: Durability,
) -> None:
    store = after_an_ephemeral_life(durability, cap_records=9)
    with pytest.raises(HeadMismatch):
        store.log.append("a", {"data": "new"}, expect_head=3)
    assert store.seqs("a") == list(range(1, 10))
    store.log.append("a", {"data": "new"})
    assert store.seqs("a") == list(range(2, 11))
    store.kill()
    assert store.log.state("a").earliest_seq >= 2
    assert store.log.audit("a").adds_up


# A change of class while copies are on their way


def copies_under_way(*, new_class: str, **caps: Any) -> Held:  # noqa: ANN401
    """A router pass is in the log's queue when its ephemeral destination is configured."""
    store = Held()
    store.log.create("b", durability="ephemeral", **caps)
    store.log.route("r", source="a", dest="b")
    store.append("b", 0)
    store.append("a", 1, 2)
    store.hold()
    engine = store.log._engine
    store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    changing = store.tasks.begin(engine.put("b", {"durability": new_class, **caps}))
    store.let_go()
    assert changing.is_over
    store.held.is_holding = False
    return store


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_cl07_copies_on_their_way_through_a_change_of_class_are_announced_as_lost(
    durability: Durability,
) -> None:
    store = copies_under_way(new_class=durability)
    assert store.seqs("b") == [1, 2, 3]
    store.kill()
    page = store.log.read("b")
    assert page.tombstone is not None, "shown once, and gone: nobody is left in the dark"
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (1, 3)


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_cl07_a_write_behind_such_a_change_does_not_keep_the_next_start_from_opening(
    durability: Durability,
) -> None:
    store = copies_under_way(new_class=durability)
    store.append("b", 3)
    store.kill()
    assert store.seqs("b") == [4]
    assert store.log.audit("b").adds_up


@pytest.mark.parametrize("caps", [{"cap_records": 2}, {"cap_bytes": 2}])
def test_cl07_what_a_cap_took_for_copies_on_their_way_stays_gone(caps: dict[str, Any]) -> None:
    store = copies_under_way(new_class="fsync", **caps)
    before = store.log.audit("b")
    assert (before.live, before.evict_floor) == (2, 2)
    store.append("b", 3)
    assert store.log.audit("b").evict_floor == 3
    store.kill()
    assert store.log.audit("b").evict_floor == 3


@pytest.mark.parametrize("is_copied", [False, True])
def test_cl07_a_tighter_cap_counts_what_is_on_its_way_beside_an_ephemeral_life(
    is_copied: bool,
) -> None:
    """Only memory has the records of that life: replay cannot count them."""
    store = Held()
    store.log.create("b", durability="fsync")
    store.append("b", *range(3))
    store.log.configure("b", durability="ephemeral")
    store.append("b", *range(3))
    store.log.configure("b", durability="fsync")
    store.log.route("r", source="a", dest="b")
    store.append("a", *range(2))
    store.hold()
    engine = store.log._engine
    if is_copied:
        store.tasks.begin(engine.forwarder.catch_up(store.topic("b")))
    else:
        store.tasks.begin(engine.append("b", RecordBatch([b"6", b"7"])))
    changing = store.tasks.begin(engine.put("b", {"durability": "fsync", "cap_records": 6}))
    store.let_go()
    assert changing.is_over
    store.held.is_holding = False
    assert store.log.audit("b").evict_floor == 3
    store.kill()
    assert store.log.audit("b").evict_floor == 3
    assert store.seqs("b") == [3], "up to the run of seqs that only memory had"


@pytest.mark.parametrize("caps", [{"cap_records": 10}, {"cap_bytes": 10}])
def test_cl07_writes_under_way_together_take_what_a_cap_takes_and_no_less_after_a_kill(
    caps: dict[str, Any],
) -> None:
    store = Held()
    for durability in ("fsync", "ephemeral", "fsync"):
        store.put("b", durability=durability, **caps)
        if durability == "fsync":
            store.append("b", *range(3))
        else:
            store.append("b", 9)
    store.hold()
    engine = store.log._engine
    for _ in range(3):
        store.tasks.begin(engine.append("b", RecordBatch([b"1", b"2"])))
    store.let_go()
    store.held.is_holding = False
    assert store.log.audit("b").evict_floor == 4
    store.kill()
    assert store.log.audit("b").evict_floor == 4
    assert store.log.audit("b").adds_up


def test_a_topic_to_which_a_write_is_on_its_way_is_not_dropped_as_an_empty_one() -> None:
    store = Held()
    store.log.create("b", durability="fsync")
    store.hold()
    engine = store.log._engine
    writing = store.tasks.begin(engine.append("b", RecordBatch([b"1"])))
    dropping = store.tasks.begin(engine.drop("b", if_empty=True))
    store.let_go()
    assert writing.result.first_seq == 1
    with pytest.raises(TopicNotEmpty):
        _ = dropping.result

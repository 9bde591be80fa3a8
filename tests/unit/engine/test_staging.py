"""Staged writes: invisible until committed, then all at once and once only."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from topics.embedded import Log
from topics.engine.effects import Gate, Io, Op, run
from topics.engine.engine import Engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.engine.stages.landing import CHUNK_BYTES
from topics.engine.stages.rows import stage_rows_of
from topics.errors import (
    Internal,
    InvalidRequest,
    NotFound,
    RecordTooLarge,
    StaleEpoch,
    Throttled,
    TopicFull,
    TopicNotFound,
)
from topics.storage.stages import StageKey, write_stage
from topics.storage.wal.inline import InlineCommitter
from topics.storage.wal.submission import Submission
from topics.testing import FaultFs, ManualClock, SimDisk
from topics.wire.drafts import batch_of


def on_disk(disk: SimDisk | FaultFs | None = None, **settings: Any) -> Log:  # noqa: ANN401
    opening = Opening(EngineSettings(cache_bytes=64 << 10, **settings), ManualClock())
    return Log(open_engine(disk or SimDisk(), "/data", opening))


def in_memory(**settings: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
    return topics.open(None, **settings)


@pytest.fixture(params=[on_disk, in_memory])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    opened: Log = request.param()
    yield opened
    opened.close()


def row(topic: str, data: object, **more: object) -> dict[str, Any]:
    return {"topic": topic, "data": data, **more}


def datas(log: Log, topic: str) -> list[Any]:
    return [record.data for record in log.read(topic).records]


# What a commit brings


def test_staged_records_are_invisible_until_their_epoch_is_committed(log: Log) -> None:
    log.append("orders", {"data": "first"})
    log.stage("etl", 1, 0, [row("orders", 1), row("audit", 2)])
    assert datas(log, "orders") == ["first"]
    with pytest.raises(TopicNotFound):
        log.read("audit")
    answer = log.commit("etl", 1, [(0, 0)])
    assert (datas(log, "orders"), datas(log, "audit")) == (["first", 1], [2])
    assert answer.to_dict() == {
        "app": "etl",
        "epoch": 1,
        "deduped": False,
        "topics": {
            "orders": {"first_seq": 2, "last_seq": 2, "count": 1},
            "audit": {"first_seq": 1, "last_seq": 1, "count": 1},
        },
    }
    assert log.state("audit").config["durability"] == "disk"


def test_records_keep_the_order_of_parts_and_rows_whatever_the_order_of_calls(log: Log) -> None:
    log.stage("etl", 1, 10, [row("t", "c"), row("t", "d")])
    log.stage("etl", 1, 2, [row("t", "a"), row("other", "x"), row("t", "b")], attempt=5)
    log.commit("etl", 1, [(10, 0), (2, 5)])
    assert datas(log, "t") == ["a", "b", "c", "d"]


def test_a_record_keeps_its_tag_node_and_meta(log: Log) -> None:
    log.stage("etl", 1, 0, [row("t", {"a": 1}, tag="", node="n", meta=[1]), row("t", b"[2]")])
    log.commit("etl", 1, [(0, 0)])
    first, second = log.read("t").records
    assert (first.data, first.tag, first.node, first.meta) == ({"a": 1}, "", "n", [1])
    assert (second.data, second.tag, second.node, second.meta) == ([2], None, None, None)


def test_the_same_stage_again_replaces_it(log: Log) -> None:
    log.stage("etl", 1, 0, [row("t", "old"), row("t", "old too")])
    staged = log.stage("etl", 1, 0, [row("t", "new")])
    assert staged.to_dict() == {
        "app": "etl",
        "epoch": 1,
        "part": 0,
        "attempt": 0,
        "records": 1,
        "bytes": 5,
    }
    log.commit("etl", 1, [(0, 0)])
    assert datas(log, "t") == ["new"]


def test_a_commit_refuses_a_stage_that_is_not_the_one_it_kept() -> None:
    disk = SimDisk()
    log = on_disk(disk)
    for attempt in (0, 1):
        log.stage("etl", 1, 0, [row("t", f"attempt {attempt}")], attempt=attempt)
    key = StageKey("etl", 1, 0, 0)
    write_stage(disk, "/data", key, [], now_ms=5)
    with pytest.raises(NotFound):
        log.commit("etl", 1, [(0, 0)])
    log.commit("etl", 1, [(0, 1)])
    assert datas(log, "t") == ["attempt 1"]


def test_stages_that_are_not_named_are_discarded(log: Log) -> None:
    log.stage("etl", 1, 0, [row("t", "lost attempt")], attempt=0)
    log.stage("etl", 1, 0, [row("t", "kept")], attempt=1)
    log.stage("etl", 2, 0, [row("t", "next epoch")])
    log.commit("etl", 1, [(0, 1)])
    log.commit("etl", 2, [(0, 0)])
    assert datas(log, "t") == ["kept", "next epoch"]
    assert log._engine.staging.taken.nbytes == 0


def test_an_epoch_without_parts_or_records_is_committed_all_the_same(log: Log) -> None:
    log.stage("etl", 1, 0, [])
    assert log.commit("etl", 1, [(0, 0)]).topics == {}
    assert log.commit("etl", 2, []).topics == {}
    with pytest.raises(StaleEpoch):
        log.commit("etl", 1, [])


def test_a_commit_larger_than_one_write_to_the_log_is_whole(log: Log) -> None:
    big = "x" * (CHUNK_BYTES // 5)
    log.stage("etl", 1, 0, [row("t", f"{n}{big}", tag=f"t{n}", meta=n) for n in range(12)])
    answer = log.commit("etl", 1, [(0, 0)])
    assert answer.topics["t"].count == 12
    found = [r for n in range(12) for r in log.read("t", after=n, limit=1).records]
    assert [(r.data[: -len(big)], r.tag, r.meta) for r in found] == [
        (str(n), f"t{n}", n) for n in range(12)
    ]


# Once only


def test_a_committed_epoch_gives_its_answer_again_and_keeps_nothing(log: Log) -> None:
    log.stage("etl", 3, 0, [row("t", 1)])
    first = log.commit("etl", 3, [(0, 0)])
    staged = log.stage("etl", 3, 0, [row("t", 1)])
    assert staged.deduped
    assert staged.to_dict()["deduped"] is True
    again = log.commit("etl", 3, [(0, 0), (77, 0)])
    assert (again.deduped, again.topics) == (True, first.topics)
    assert datas(log, "t") == [1]
    assert log._engine.staging.taken.nbytes == 0


def test_an_epoch_below_the_last_one_is_stale(log: Log) -> None:
    log.commit("etl", 5, [])
    for call in (lambda: log.stage("etl", 4, 0, []), lambda: log.commit("etl", 4, [])):
        with pytest.raises(StaleEpoch) as stale:
            call()
        assert stale.value.detail == {"app": "etl", "epoch": 4, "last_epoch": 5}
    log.commit("other", 4, [])  # apps do not know each other


# Refusals, with nothing done


def test_a_missing_stage_appends_nothing(log: Log) -> None:
    log.append("t", {"data": 0})
    log.stage("etl", 1, 0, [row("t", 1)])
    with pytest.raises(NotFound, match="stage 1/0 of epoch 1"):
        log.commit("etl", 1, [(0, 0), (1, 0)])
    assert datas(log, "t") == [0]
    assert log.commit("etl", 1, [(0, 0)]).topics["t"].first_seq == 2


def test_a_damaged_stage_has_to_be_staged_again() -> None:
    disk = SimDisk()
    log = on_disk(disk)
    log.stage("etl", 1, 0, [row("t", 1)])
    (path,) = [p for p in disk.paths() if p.endswith(".stage")]
    disk.flip(path, len(disk.peek(path)) - 1)
    with pytest.raises(NotFound):
        log.commit("etl", 1, [(0, 0)])
    log.stage("etl", 1, 0, [row("t", 1)])
    log.commit("etl", 1, [(0, 0)])
    assert datas(log, "t") == [1]


def test_an_ephemeral_topic_refuses_the_whole_commit(log: Log) -> None:
    log.create("fleeting", durability="ephemeral")
    log.stage("etl", 1, 0, [row("t", 1), row("fleeting", 2)])
    with pytest.raises(InvalidRequest, match="ephemeral"):
        log.commit("etl", 1, [(0, 0)])
    assert [summary.topic for summary in log.topics()] == ["fleeting"]
    log.configure("fleeting", durability="fsync")
    log.commit("etl", 1, [(0, 0)])
    assert datas(log, "fleeting") == [2]


def test_a_full_topic_refuses_the_whole_commit(log: Log) -> None:
    log.create("small", cap_records=2, discard="reject")
    log.append("small", {"data": 0})
    log.stage("etl", 1, 0, [row("t", 1), row("small", 1), row("small", 2)])
    log.append("t", {"data": 0})
    with pytest.raises(TopicFull):
        log.commit("etl", 1, [(0, 0)])
    assert (datas(log, "t"), datas(log, "small")) == ([0], [0])
    log.delete("small", before_seq=2)
    log.commit("etl", 1, [(0, 0)])
    assert datas(log, "small") == [1, 2]


def test_the_limit_on_all_bytes_holds_for_commits_too() -> None:
    log = in_memory(max_total_bytes=10)
    log.stage("etl", 1, 0, [row("t", "12345"), row("u", "1234")])
    with pytest.raises(Throttled):
        log.commit("etl", 1, [(0, 0)])


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [({"max_topics": 2}, Throttled), ({"max_total_bytes": 8}, Throttled), ({}, TopicFull)],
)
@pytest.mark.parametrize("opened", [on_disk, in_memory])
def test_a_refused_commit_leaves_no_topics_behind(
    opened: Callable[..., Log], limits: dict[str, int], refusal: type[Exception]
) -> None:
    with opened(**limits) as log:
        log.create("full", cap_records=1, discard="reject")
        log.append("full", {"data": 0})
        taken = [] if limits else [row("full", 1)]
        log.stage("etl", 1, 0, [row("new", "1234"), row("newer", "1234"), *taken])
        with pytest.raises(refusal):
            log.commit("etl", 1, [(0, 0)])
        assert [summary.topic for summary in log.topics()] == ["full"]


def test_limits_are_judged_per_record_when_it_is_staged() -> None:
    log = in_memory(max_record_bytes=10, max_batch_records=2, max_tag_bytes=3)
    with pytest.raises(RecordTooLarge):
        log.stage("etl", 1, 0, [row("t", 1), row("t", "123456789")])
    with pytest.raises(InvalidRequest, match="tag of record 0"):
        log.stage("etl", 1, 0, [row("t", 1, tag="1234")])
    log.stage("etl", 1, 0, [row("t", n) for n in range(5)])  # more than one write may hold
    assert log.commit("etl", 1, [(0, 0)]).topics["t"].count == 5


@pytest.mark.parametrize("app", ["", "a b", "-a", "a" * 129, "ä"])
def test_a_malformed_app_is_refused(log: Log, app: str) -> None:
    with pytest.raises(InvalidRequest, match="app name"):
        log.stage(app, 1, 0, [])
    with pytest.raises(InvalidRequest, match="app name"):
        log.commit(app, 1, [])


@pytest.mark.parametrize("number", [-1, 1 << 64, True, "1"])
def test_a_malformed_number_is_refused(log: Log, number: Any) -> None:  # noqa: ANN401
    for call in (
        lambda: log.stage("etl", number, 0, []),
        lambda: log.stage("etl", 1, number, []),
        lambda: log.stage("etl", 1, 0, [], attempt=number),
        lambda: log.commit("etl", number, []),
        lambda: log.commit("etl", 1, [(number, 0)]),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_malformed_rows_are_refused(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="topic name"):
        log.stage("etl", 1, 0, [row("no spaces", 1)])
    with pytest.raises(InvalidRequest, match='needs a "topic"'):
        log.stage("etl", 1, 0, [{"data": 1}])
    with pytest.raises(InvalidRequest, match="unknown field"):
        log.stage("etl", 1, 0, [row("t", 1, tags="x")])
    with pytest.raises(InvalidRequest):
        log.stage("etl", 1, 0, [3])  # type: ignore[list-item]  # what is tested


def test_a_part_counts_once(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="part 3 is named twice"):
        log.commit("etl", 1, [(3, 0), (1, 0), (3, 1)])
    with pytest.raises(InvalidRequest, match="at most"):
        log.commit("etl", 1, [(n, 0) for n in range(100_001)])


def test_the_largest_numbers_are_fine(log: Log) -> None:
    top = (1 << 64) - 1
    log.stage("etl", top, top, [row("t", 1)], attempt=top)
    assert log.commit("etl", top, [(top, top)]).topics["t"].count == 1


@pytest.mark.parametrize("op", ["pwrite", "fsync", "rename", "sync_dir"])
def test_a_stage_that_could_not_be_written_is_not_there(op: Any) -> None:  # noqa: ANN401
    faults = FaultFs(SimDisk())
    log = on_disk(faults)
    log.stage("etl", 1, 0, [row("t", "old")])
    faults.fail(op, errno.EIO, path="*/stages*")
    with pytest.raises(Internal, match="stage it again"):
        log.stage("etl", 1, 0, [row("t", "new")])
    assert log._engine.staging.taken.nbytes == 0
    with pytest.raises(NotFound):
        log.commit("etl", 1, [(0, 0)])
    log.stage("etl", 1, 0, [row("t", "new")])
    log.commit("etl", 1, [(0, 0)])
    assert datas(log, "t") == ["new"]


class FailingCommitter(InlineCommitter):
    """Refuses one submission that carries many bytes, as a lack of descriptors would."""

    fails = True

    def submit(self, submission: Submission) -> None:
        if self.fails and len(submission.frames) > CHUNK_BYTES // 2:
            self.fails = False
            submission.error = Internal("nothing was written")
            submission.done = True
            submission.on_done(submission)
        else:
            super().submit(submission)


def test_behind_a_piece_that_failed_nothing_more_goes_to_its_shard() -> None:
    disk, settings = SimDisk(), EngineSettings(cache_bytes=64 << 10)
    opening = Opening(settings, ManualClock(), make_committer=FailingCommitter)
    log = Log(open_engine(disk.mount(), "/data", opening))
    big = "x" * (CHUNK_BYTES // 5)
    log.stage("etl", 1, 0, [row("t", f"{n}{big}") for n in range(12)])
    with pytest.raises(Internal, match="waits until the log takes its records"):
        log.commit("etl", 1, [(0, 0)])
    assert datas(log, "t") == []
    assert log.commit("etl", 1, [(0, 0)]).deduped
    disk.kill()
    again = on_disk(disk)
    assert again.state("t").count == 12


def test_the_seqs_of_a_commit_are_reserved_like_those_of_a_write() -> None:
    log = on_disk()
    log.stage("etl", 1, 0, [row("t", n) for n in range(1000)])
    log.commit("etl", 1, [(0, 0)])
    assert log._engine.kernel.catalog.by_name["t"].reserved >= 1000


# Several operations at once, as in a server


class HeldCommitter(InlineCommitter):
    """Answers submissions only when told to, like a log with threads of its own."""

    held: list[Submission]
    holding = False

    def submit(self, submission: Submission) -> None:
        if self.holding:
            self.held.append(submission)
        else:
            super().submit(submission)

    def hold(self) -> None:
        self.holding, self.held = True, []

    def answer_next(self) -> None:
        InlineCommitter.submit(self, self.held.pop(0))


class Loop:
    """Drives operations side by side, each as far as it gets."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        committer = engine.kernel.committer
        assert isinstance(committer, HeldCommitter)
        self.committer = committer
        self.answers: dict[str, Any] = {}
        self._ops: dict[str, tuple[Op[Any], Any]] = {}

    def start(self, name: str, op: Op[Any]) -> None:
        self._ops[name] = (op, None)
        self.run()

    def waits_for_gate(self, name: str) -> bool:
        return name in self._ops and isinstance(self._ops[name][1], Gate)

    def run(self) -> None:
        """Advance every operation until all wait for the log or for each other."""
        while sum(self._advance(name) for name in list(self._ops)):
            pass

    def _advance(self, name: str) -> bool:
        op, wait = self._ops[name]
        if isinstance(wait, Submission) and not wait.done:
            return False
        if isinstance(wait, Gate) and not wait.is_open:
            return False
        try:
            result = wait.work() if isinstance(wait, Io) else None
            self._ops[name] = (op, op.send(result))
        except StopIteration as finished:
            self.answers[name] = finished.value
            del self._ops[name]
        except topics.TopicsError as error:
            self.answers[name] = error
            del self._ops[name]
        return True

    def finish(self) -> None:
        while self.committer.held:
            self.committer.answer_next()
            self.run()
        assert not self._ops


@pytest.fixture
def loop() -> Loop:
    return held_loop()


def held_loop(**settings: Any) -> Loop:  # noqa: ANN401 - EngineSettings checks them
    opening = Opening(
        EngineSettings(cache_bytes=64 << 10, **settings),
        ManualClock(),
        make_committer=HeldCommitter,
    )
    engine = open_engine(SimDisk(), "/data", opening)
    log = Log(engine)
    log.append("t", {"data": 0})
    log.append("u", {"data": 0})
    log.stage("etl", 1, 0, [row("t", 1), row("u", 1)])
    log.stage("other", 1, 0, [row("u", "o"), row("t", "o")])
    loop = Loop(engine)
    loop.committer.hold()
    return loop


def test_writes_to_a_topic_wait_for_a_commit_under_way(loop: Loop) -> None:
    engine = loop.engine
    loop.start("commit", engine.commit("etl", 1, [(0, 0)]))
    for name, op in {
        "append": engine.append("t", batch_of({"data": 2}, None)),
        "delete": engine.delete("t", before=3, match=None),
        "put": engine.put("u", {"cap_records": 9}),
        "drop": engine.drop("u"),
    }.items():
        loop.start(name, op)
        assert loop.waits_for_gate(name)
    loop.start("elsewhere", engine.append("v", batch_of({"data": 2}, None)))
    assert not loop.waits_for_gate("elsewhere")
    loop.finish()
    assert loop.answers["commit"].topics["t"].first_seq == 2
    assert loop.answers["append"].first_seq == 3
    assert loop.answers["delete"].deleted == 2
    assert loop.answers["drop"].deleted


def test_nothing_shows_before_everything_does(loop: Loop) -> None:
    catalog = loop.engine.kernel.catalog
    loop.start("commit", loop.engine.commit("etl", 1, [(0, 0)]))
    while "commit" not in loop.answers:
        assert {name: catalog.by_name[name].head for name in "tu"} == {"t": 1, "u": 1}
        assert "etl" not in catalog.apps
        loop.committer.answer_next()
        loop.run()
    assert {name: catalog.by_name[name].head for name in "tu"} == {"t": 2, "u": 2}


def test_writes_already_under_way_come_before_the_commit(loop: Loop) -> None:
    engine = loop.engine
    loop.start("append", engine.append("t", batch_of({"data": 1}, None)))
    loop.start("commit", engine.commit("etl", 1, [(0, 0)]))
    loop.finish()
    assert loop.answers["append"].first_seq == 2
    assert loop.answers["commit"].topics["t"].first_seq == 3


def test_commits_of_two_apps_over_the_same_topics_take_turns(loop: Loop) -> None:
    loop.start("one", loop.engine.commit("etl", 1, [(0, 0)]))
    loop.start("two", loop.engine.commit("other", 1, [(0, 0)]))
    assert loop.waits_for_gate("two")
    loop.finish()
    for topic in "tu":
        assert loop.answers["one"].topics[topic].first_seq == 2
        assert loop.answers["two"].topics[topic].first_seq == 3


def test_commits_and_writes_side_by_side_stay_within_the_limit_on_all_bytes() -> None:
    loop = held_loop(max_total_bytes=8)  # 2 of them are there already
    engine = loop.engine
    run(engine.stage("third", 1, 0, 0, stage_rows_of([row("v", "123")])))
    loop.start("one", engine.commit("etl", 1, [(0, 0)]))  # 2
    loop.start("two", engine.commit("third", 1, [(0, 0)]))  # 5
    loop.start("write", engine.append("w", batch_of({"data": "123"}, None)))
    loop.finish()
    assert loop.answers["one"].topics["t"].count == 1
    refused = [loop.answers[name] for name in ("two", "write")]
    assert [error.code for error in refused if isinstance(error, Throttled)] == ["throttled"] * 2
    assert engine.kernel.catalog.pending_bytes == 0
    assert engine.kernel.catalog.bytes == 4


@pytest.mark.parametrize("answered", [0, 1])
def test_a_commit_that_fails_before_its_point_gives_its_bytes_back(answered: int) -> None:
    loop = held_loop(wal_shards=1)
    loop.start("commit", loop.engine.commit("etl", 1, [(0, 0)]))
    for _ in range(answered):  # the barrier of the only shard
        loop.committer.answer_next()
        loop.run()
    assert loop.engine.kernel.catalog.pending_bytes == 2
    refused = loop.committer.held.pop(0)
    refused.error, refused.done = Internal("nothing was written"), True
    refused.on_done(refused)
    loop.run()
    assert isinstance(loop.answers["commit"], Internal)
    assert loop.engine.kernel.catalog.pending_bytes == 0


def test_a_second_commit_of_an_epoch_waits_for_the_first_and_repeats_its_answer(
    loop: Loop,
) -> None:
    loop.start("one", loop.engine.commit("etl", 1, [(0, 0)]))
    loop.start("two", loop.engine.commit("etl", 1, [(0, 0)]))
    rows = stage_rows_of([row("t", "late")])
    loop.start("stage", loop.engine.stage("etl", 1, 5, 0, rows))
    assert loop.waits_for_gate("two")
    assert loop.waits_for_gate("stage")
    loop.finish()
    assert not loop.answers["one"].deduped
    assert loop.answers["two"].deduped
    assert loop.answers["two"].topics == loop.answers["one"].topics
    assert loop.answers["stage"].deduped


def test_a_topic_dropped_before_the_commit_gets_its_turn_is_made_again(loop: Loop) -> None:
    old = loop.engine.kernel.catalog.by_name["t"]
    loop.start("one", loop.engine.commit("other", 1, [(0, 0)]))
    loop.start("drop", loop.engine.drop("t"))
    loop.start("two", loop.engine.commit("etl", 1, [(0, 0)]))
    loop.finish()
    assert loop.answers["drop"].deleted
    assert loop.engine.kernel.catalog.by_name["t"] is not old
    assert loop.answers["two"].topics["t"].first_seq == 1


def test_a_checkpoint_waits_while_a_commit_is_landing(loop: Loop) -> None:
    upkeep = loop.engine.upkeep
    assert upkeep is not None
    loop.start("commit", loop.engine.commit("etl", 1, [(0, 0)]))
    loop.committer.answer_next()  # the barrier
    loop.run()
    loop.start("checkpoint", upkeep.checkpoint())
    for _ in range(2):  # the commit point, then the checkpoint's own barrier
        loop.committer.answer_next()
        loop.run()
    assert loop.waits_for_gate("checkpoint")
    loop.finish()
    assert not loop.answers["commit"].deduped
    assert loop.answers["checkpoint"] is None

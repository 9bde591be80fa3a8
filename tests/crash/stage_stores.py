"""A store with topics on three shards, and a sink that stages and commits to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.crash.stores import contents, opened

from topics.embedded import Log
from topics.storage import layout
from topics.storage.fs import Fs
from topics.testing import SimDisk
from topics.topic_settings import Durability
from topics.values import Record, StageCommit

SHARDS = 3
TOPICS: dict[str, Durability] = {
    "safe": "fsync",
    "plain": "disk",
    "spare": "disk",
    "loose": "memory",
}
"""Every class that may take part; the ids are 1 to 4, which reach all the shards."""
LATE = "late"
"""A topic that only the commit creates."""
APP = "etl"
PARTS = [(0, 7), (1, 7)]

assert len({layout.shard_of(topic_id, SHARDS) for topic_id in range(1, 5)}) == SHARDS


def open_sharded(fs: Fs, **changes: Any) -> Log:  # noqa: ANN401 - EngineSettings checks them
    return opened(fs, wal_shards=SHARDS, **changes)


def new_store() -> SimDisk:
    """A disk with a store that holds some records and one committed epoch, not cleanly closed."""
    disk = SimDisk()
    log = open_sharded(disk.mount())
    for topic, durability in TOPICS.items():
        log.create(topic, durability=durability)
        log.append(topic, [{"data": "before"}, {"data": "before too"}])
    log.stage(APP, 1, 0, rows(1, 0))
    log.commit(APP, 1, [(0, 0)])
    log.sync()
    disk.kill()
    disk.settle()
    return disk


def rows(epoch: int, part: int) -> list[dict[str, Any]]:
    """Three rows a topic, told apart by epoch, part and place."""
    names = [*TOPICS, LATE] if epoch > 1 else list(TOPICS)
    return [
        {"topic": topic, "data": [epoch, part, number], "tag": f"p{part}", "meta": {"n": number}}
        for number in range(3)
        for topic in names
    ]


def expected(epoch: int) -> list[list[int]]:
    """What a commit of both parts brings to each topic."""
    return [[epoch, part, number] for part in range(len(PARTS)) for number in range(3)]


@dataclass
class Sink:
    """Stages and commits epoch 2, and remembers what it was told."""

    staged: list[int] = field(default_factory=list)
    answer: StageCommit | None = None

    def run(self, log: Log) -> StageCommit:
        for part, attempt in PARTS:
            log.stage(APP, 2, part, rows(2, part), attempt=attempt)
            self.staged.append(part)
        log.stage(APP, 2, 9, rows(2, 9), attempt=1)  # an attempt that nobody will name
        self.answer = log.commit(APP, 2, PARTS)
        return self.answer


def seen(log: Log, epoch: int) -> dict[str, list[Any]]:
    """The records of an epoch that each topic of the sink shows."""
    return {
        topic: [r.data for r in shown.records.values() if r.data[0] == epoch]
        for topic, shown in contents(log).items()
        if topic in (*TOPICS, LATE)
    }


def records(log: Log) -> dict[str, tuple[int, dict[int, Record]]]:
    """The head and the records of every topic."""
    return {t: (c.state["head_seq"], c.records) for t, c in contents(log).items()}


def check_after(disk: SimDisk, sink: Sink) -> None:
    """After any end of the program: all or nothing, and trying again gives exactly once."""
    log = open_sharded(disk.mount())
    shown = seen(log, 2)
    is_committed = any(shown.values())
    assert is_committed or sink.answer is None, "an acknowledged commit is gone"
    if is_committed:
        assert shown == dict.fromkeys([*TOPICS, LATE], expected(2))
    for part, attempt in PARTS:
        staged = log.stage(APP, 2, part, rows(2, part), attempt=attempt)
        assert staged.deduped is is_committed
    answer = log.commit(APP, 2, PARTS)
    assert answer.deduped is is_committed
    if sink.answer is not None:
        assert answer.topics == sink.answer.topics
    assert log.commit(APP, 2, PARTS).topics == answer.topics
    check_whole(log, answer)
    for topic in TOPICS:
        head = log.state(topic).head_seq
        assert log.append(topic, {"data": "after"}).first_seq > head
    log.sync()
    before = {topic: shown for topic, (_, shown) in records(log).items()}
    disk.kill()
    again = open_sharded(disk.mount())
    assert {topic: shown for topic, (_, shown) in records(again).items()} == before
    assert again.commit(APP, 2, PARTS) == answer_again(answer)
    again.close()


def check_whole(log: Log, answer: StageCommit) -> None:
    """Each topic shows every record once, under the seqs that the commit reported."""
    assert seen(log, 1) == dict.fromkeys(TOPICS, expected(1)[:3]) | {LATE: []}
    assert seen(log, 2) == dict.fromkeys([*TOPICS, LATE], expected(2))
    for topic, given in answer.topics.items():
        shown = contents(log)[topic].records
        found = [shown[seq].data for seq in range(given.first_seq, given.last_seq + 1)]
        assert found == expected(2)
        assert log.audit(topic).adds_up


def answer_again(answer: StageCommit) -> StageCommit:
    return StageCommit(answer.app, answer.epoch, True, answer.topics)

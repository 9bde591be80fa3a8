"""What is in the log and cannot be published: everybody is told, and a restart shows it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from tests.unit.engine.builders import Held, Store

from topics.batch import RecordBatch
from topics.core.topic import Topic
from topics.engine.writes import deleting
from topics.errors import Internal, LogFailed


@contextmanager
def unpublished(method: str, owner: object = Topic) -> Iterator[None]:
    """Nothing is published this way: the disk fails as soon as memory has to be changed."""
    with mock.patch.object(owner, method, side_effect=OSError(errno.EIO, "cannot be read")):
        yield


def test_ws16_a_keyed_write_that_could_not_be_published_is_there_once_after_a_restart() -> None:
    store = Store()
    store.log.create("t", durability="fsync")
    store.append("t", 1)
    with unpublished("apply_appended"), pytest.raises(LogFailed, match="could not be published"):
        store.log.append("t", [{"data": 2}], idempotency_key="k")
    with pytest.raises(LogFailed):
        store.log.append("t", [{"data": 2}], idempotency_key="k")
    assert store.seqs("t") == [1], "readers go on"
    log = store.kill()
    again = log.append("t", [{"data": 2}], idempotency_key="k")
    assert (again.first_seq, again.deduped) == (2, True)
    assert store.seqs("t") == [1, 2]


def test_ws16_a_delete_that_could_not_be_published_is_not_forgotten_by_a_checkpoint() -> None:
    store = Store()
    store.log.create("t", durability="fsync")
    store.append("t", 1, 2, 3)
    store.log.checkpoint()
    with unpublished("apply_deleted", deleting), pytest.raises(LogFailed):
        store.log.delete("t", before_seq=3)
    with pytest.raises(LogFailed):
        store.log.checkpoint()
    store.kill()
    assert store.seqs("t") == [3]


def test_ws16_everybody_who_waits_behind_an_unpublished_write_is_answered() -> None:
    store = Held()
    engine = store.log._engine
    store.log.create("t", durability="fsync")
    store.log.create("u", durability="fsync")
    store.hold()
    tasks = [store.tasks.begin(engine.append(name, RecordBatch([b"1"]))) for name in "tut"]
    with unpublished("apply_appended"):
        store.let_go()
    assert all(isinstance(task.error, LogFailed) for task in tasks)
    assert store.topic("t").pending == store.topic("u").pending == 0
    store.kill()
    assert store.seqs("t")[:1] == [1]


def test_ws16_a_commit_of_stages_that_could_not_be_published_is_whole_after_a_restart() -> None:
    store = Store()
    log = store.log
    log.create("t", durability="fsync")
    log.stage("etl", 1, 0, [{"topic": "t", "data": 1}, {"topic": "t", "data": 2}])
    with unpublished("apply_appended"), pytest.raises(Internal, match="could not be published"):
        log.commit("etl", 1, [(0, 0)])
    with pytest.raises(Internal):
        store.append("t", 3)
    with pytest.raises(Internal):
        log.checkpoint()
    store.kill()
    assert store.seqs("t") == [1, 2]

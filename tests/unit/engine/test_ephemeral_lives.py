"""Topics that were ephemeral for a while: what a restart keeps of each life."""

import pytest
from tests.unit.engine.builders import Store


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_seqs_go_on_when_an_ephemeral_topic_is_logged_after_a_crash(durability: str) -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.append("a", 1, 2)
    store.kill()
    head = store.log.state("a").head_seq
    assert head > 2
    store.log.create("a", durability=durability)
    store.append("a", 3)
    store.kill()
    assert store.seqs("a") == [head + 1]
    assert store.log.audit("a").adds_up
    assert store.log.read("a").tombstone is not None


def test_a_key_does_not_answer_for_records_that_an_ephemeral_restart_lost() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.create("a", durability="ephemeral")
    store.kill()
    assert not store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_bytes_that_an_ephemeral_restart_lost_leave_the_gauge() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.append("a", "payload")
    store.log.create("a", durability="ephemeral")
    store.restart()
    assert store.kernel.catalog.bytes == 0


def test_a_key_of_an_ephemeral_write_is_gone_after_a_restart_in_another_class() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.create("a", durability="disk")
    store.log.checkpoint()
    store.kill()
    assert not store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_a_key_outlives_a_checkpoint_taken_while_its_topic_was_ephemeral() -> None:
    store = Store()
    store.log.create("a", durability="disk")
    store.log.append("a", {"data": 1}, idempotency_key="k")
    store.log.create("a", durability="ephemeral")
    store.log.checkpoint()
    store.log.create("a", durability="disk")
    store.kill()
    assert store.log.append("a", {"data": 1}, idempotency_key="k").deduped


def test_the_ledger_adds_up_when_an_idle_ephemeral_topic_is_logged_again() -> None:
    store = Store()
    store.log.create("a", durability="ephemeral")
    store.kill()
    store.restart()
    store.log.create("a", durability="disk")
    store.kill()
    assert store.log.audit("a").adds_up

"""The classes answer as README's table promises."""

from __future__ import annotations

from topics.core.durability import CLASSES


def test_only_fsync_syncs_before_the_ack() -> None:
    assert [name for name, klass in CLASSES.items() if klass.needs_sync] == ["fsync"]


def test_only_ephemeral_leaves_the_log_alone_and_dies_with_the_process() -> None:
    assert [name for name, klass in CLASSES.items() if not klass.is_logged] == ["ephemeral"]
    assert [name for name, klass in CLASSES.items() if not klass.survives_restart] == ["ephemeral"]


def test_a_class_that_announces_its_lost_tail_reserves_seqs() -> None:
    for klass in CLASSES.values():
        assert klass.announces_lost_tail == klass.reserves_seqs == bool(klass.first_block)


def test_only_memory_may_assign_a_seq_twice() -> None:
    assert [name for name, klass in CLASSES.items() if klass.may_reuse_seqs] == ["memory"]

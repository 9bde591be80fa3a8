"""Mistakes planted one at a time, each found by a check that the log itself passes.

Those of log, replay, retention and checkpoint are in `tests/property/model/bugs.py`, sixteen of
them. Here are the ones about queues, stages and tiers, which other checks find.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.crash.fault_oracle import check
from tests.crash.fault_program import Program
from tests.crash.fault_scenes import fill, settle_segments
from tests.crash.stage_stores import Sink, check_after, new_store, open_sharded
from tests.property.model.bugs import instead
from tests.property.test_leases_model import LeaseMachine

from topics.core.leases import Lease, LeaseBook
from topics.engine.stages.staging import Staging
from topics.engine.upkeep import relocation
from topics.errors import TopicsError
from topics.queue import queues
from topics.queue.holding import Named
from topics.testing import SimDisk, stop_at
from topics.testing._mount import Mount

PATIENCE = settings(
    max_examples=3000,
    stateful_step_count=20,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
Bug = Callable[[], Iterator[None]]


# The mistakes


def a_stale_worker_may_finish_a_job_of_another() -> Iterator[None]:
    """The fence is ignored: neither the holder nor the lease id is looked at."""

    def hold(
        original: object, leases: LeaseBook, named: Named, held: dict[int, Lease]
    ) -> list[int]:
        del original
        skipped = []
        for seq in named.seqs:
            lease = leases.holder(seq)
            if lease is None:
                skipped.append(seq)
            else:
                held[seq] = lease
        return skipped

    return instead(queues, "hold", hold)


def an_epoch_is_committed_twice() -> Iterator[None]:
    def committed_app(original: object, staging: Staging, app: str, epoch: int) -> None:
        del original, staging, app, epoch

    return instead(Staging, "_committed_app", committed_app)


def a_hot_segment_goes_before_the_names_of_its_copy_are_durable() -> Iterator[None]:
    def sync_dir(original: Callable[..., None], mount: Mount, path: str) -> None:
        if not path.startswith("/cold"):
            original(mount, path)

    return instead(Mount, "sync_dir", sync_dir)


def a_segment_is_unlinked_before_its_pointer_is_durable() -> Iterator[None]:
    """The hot copy goes first, and only then is a cold one made and named."""

    def relocate(
        original: Callable[..., Generator[Any, Any, Any]],
        store: Any,  # noqa: ANN401 - passed on
        topic_id: int,
        seg: Any,  # noqa: ANN401 - passed on
        *,
        now_ms: int,
    ) -> Generator[Any, Any, Any]:
        store.fs.unlink(store.files(topic_id, seg.first).data)
        return (yield from original(store, topic_id, seg, now_ms=now_ms))

    return instead(relocation, "relocate", relocate)


# What finds them


def in_the_model_of_leases() -> None:
    run_state_machine_as_test(LeaseMachine, settings=PATIENCE)


def in_stages_that_are_committed_again() -> None:
    disk, sink = new_store(), Sink()
    sink.run(open_sharded(disk.mount()))
    disk.kill()
    check_after(disk, sink)


def in_a_move_that_a_power_cut_ends() -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    settle_segments(program)
    with stop_at("tier.hot_data_unlinked", partial(program.disk.crash, 0, "none", names="none")):
        program.maintain()
    check(program, "power")


def in_a_move() -> None:
    program = Program(SimDisk(), wal_shards=1)
    fill(program)
    settle_segments(program)
    program.maintain()
    program.disk.kill()
    check(program, "kill")


FOUND: list[tuple[Bug, Callable[[], None]]] = [
    (a_stale_worker_may_finish_a_job_of_another, in_the_model_of_leases),
    (an_epoch_is_committed_twice, in_stages_that_are_committed_again),
    (a_hot_segment_goes_before_the_names_of_its_copy_are_durable, in_a_move_that_a_power_cut_ends),
    (a_segment_is_unlinked_before_its_pointer_is_durable, in_a_move),
]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("bug", "find"), FOUND, ids=[bug.__name__ for bug, _ in FOUND])
def test_it_is_found(bug: Bug, find: Callable[[], None]) -> None:
    with contextmanager(bug)(), pytest.raises((AssertionError, TopicsError, KeyError)):
        find()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "find", [in_stages_that_are_committed_again, in_a_move_that_a_power_cut_ends, in_a_move]
)
def test_nothing_is_found_where_nothing_is_planted(find: Callable[[], None]) -> None:
    find()

"""Bugs planted one at a time, to see that the model run finds each of them.

Every one is a mistake somebody could make in good faith. They are patches from outside, so the
engine carries no trace of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import msgspec

from topics.core import catalog
from topics.core.facts import Deleted, Evicted, Fact, HeadReserved, KeyRemembered
from topics.core.topic import Topic
from topics.engine import retention
from topics.engine.effects import Op
from topics.engine.kernel import FactSubmission, Kernel
from topics.engine.recovery import recover as recovery
from topics.engine.upkeep import checkpoint, topic_lines
from topics.engine.upkeep.checkpoint import Checkpointer
from topics.engine.upkeep.trimming import Trimmer
from topics.engine.writes import deleting
from topics.engine.writes.append import AppendSubmission
from topics.storage.snapshots.lines import GroupPosition, TopicLine
from topics.storage.wal.shard import Shard
from topics.storage.wal.submission import Submission
from topics.testing._mount import Mount

Body = Callable[[], Iterator[None]]


@dataclass(frozen=True)
class Bug:
    """A patch, and the steps of the machine that can bring it to light.

    Fewer steps only make the search short; what is compared after each is the same.
    """

    plant: Callable[[], AbstractContextManager[None]]
    steps: frozenset[str]


BUGS: dict[str, Bug] = {}


def planted(*steps: str) -> Callable[[Body], Body]:
    """Add a bug to the list under its own name."""

    def add(body: Body) -> Body:
        BUGS[body.__name__] = Bug(contextmanager(body), frozenset(steps) | {"append"})
        return body

    return add


def instead(owner: object, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Let `replacement` be called with the original in front of its arguments."""
    original = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - stands for any function
        return replacement(original, *args, **kwargs)

    with mock.patch.object(owner, name, wrapper):
        yield


# The log


@planted("configure", "lose_power")
def a_durable_write_is_acked_before_its_sync() -> Iterator[None]:
    def write_one(original: Callable[..., None], shard: Shard, submission: Submission) -> None:
        submission.durable = False
        original(shard, submission)

    return instead(Shard, "write_one", write_one)


@planted("configure", "fail_a_sync")
def a_failed_sync_is_tried_again() -> Iterator[None]:
    def sync_file(original: Callable[..., None], shard: Shard) -> None:
        file = shard._file

        class Patient:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def fdatasync(self) -> None:
                try:
                    file.fdatasync()
                except OSError:
                    file.fdatasync()

        shard._file = Patient()  # type: ignore[assignment]  # stands in for the file
        try:
            original(shard)
        finally:
            shard._file = file

    return instead(Shard, "_sync_file", sync_file)


@planted("lose_power")
def new_names_in_the_log_directory_are_not_synced() -> Iterator[None]:
    def sync_dir(original: Callable[..., None], mount: Mount, path: str) -> None:
        if "/wal" not in path:
            original(mount, path)

    return instead(Mount, "sync_dir", sync_dir)


@planted("checkpoint", "kill")
def the_log_is_cut_to_what_the_newest_snapshot_needs() -> Iterator[None]:
    def trim_group(
        original: Callable[..., Op[None]], trimmer: Trimmer, position: GroupPosition
    ) -> Op[None]:
        assert trimmer._newest is not None
        return original(trimmer, trimmer._newest.groups.get(position.key, position))

    return instead(Trimmer, "_trim_group", trim_group)


# Replay


def _replay_without(kind: type) -> Iterator[None]:
    def apply(original: Callable[..., None], topic: Topic, fact: Fact, generation: int) -> None:
        if not isinstance(fact, kind):
            original(topic, fact, generation)

    return instead(catalog, "_apply_to", apply)


@planted("delete", "kill")
def replay_passes_over_deletes() -> Iterator[None]:
    return _replay_without(Deleted)


@planted("kill")
def keys_are_not_replayed() -> Iterator[None]:
    return _replay_without(KeyRemembered)


@planted("lose_power")
def reserved_seqs_are_given_out_again() -> Iterator[None]:
    def resume(original: Callable[..., Fact | None], topic: Topic, **kw: int) -> Fact | None:
        topic.reserved = min(topic.reserved, topic.head)
        return original(topic, **kw)

    return instead(recovery, "resume_head", resume)


@planted("lose_power")
def the_ceiling_is_not_durable_before_its_seqs() -> Iterator[None]:
    def submit(
        original: Callable[..., FactSubmission],
        kernel: Kernel,
        shard: int,
        facts: Sequence[Fact],
        *,
        durable: bool,
        then: Callable[[FactSubmission], None] | None = None,
    ) -> FactSubmission:
        is_ceiling = len(facts) == 1 and isinstance(facts[0], HeadReserved)
        return original(kernel, shard, facts, durable=durable and not is_ceiling, then=then)

    return instead(Kernel, "submit_to", submit)


# Retention and deletes


@planted("let_time_pass", "read", "kill")
def expired_records_are_dropped_without_a_note_in_the_log() -> Iterator[None]:
    def log(original: object, kernel: Kernel, topic: Topic, fact: Evicted) -> Iterator[None]:
        del original, kernel, topic, fact
        return iter(())  # ends with None, as when the log did not take it

    return instead(retention, "_log", log)


@planted("delete")
def a_delete_moves_the_floor() -> Iterator[None]:
    def delete(original: Callable[..., int], topic: Topic, fact: Deleted, **kw: int) -> int:
        removed = original(topic, fact, **kw)
        if removed:
            topic.cap_hi = max(topic.cap_hi, topic.earliest - 1)
        return removed

    with contextmanager(instead)(catalog, "apply_deleted", delete):
        yield from instead(deleting, "apply_deleted", delete)


@planted("configure", "delete")
def the_cap_counts_the_span_and_not_the_records() -> Iterator[None]:
    def enforce(original: Callable[..., None], topic: Topic) -> None:
        count, topic.count = topic.count, topic.head - topic.earliest + 1
        dead = topic.count - count
        original(topic)
        topic.count -= dead

    return instead(Topic, "enforce_caps", enforce)


@planted("configure", "let_time_pass", "kill")
def evictions_in_the_log_are_not_applied() -> Iterator[None]:
    def apply(original: Callable[..., None], topic: Topic, fact: Fact, generation: int) -> None:
        if not isinstance(fact, Evicted):
            original(topic, fact, generation)

    return instead(catalog, "_apply_to", apply)


@planted("run_out_of_space")
def a_write_that_failed_keeps_its_seqs() -> Iterator[None]:
    def publish(original: Callable[..., None], kernel: Kernel, submission: Submission) -> None:
        original(kernel, submission)
        if isinstance(submission, AppendSubmission) and submission.error is not None:
            submission.topic.handed_out = submission.run.last_seq

    return instead(Kernel, "publish", publish)


# Checkpoints


def _line_with(change: Callable[[Topic, TopicLine], TopicLine]) -> Iterator[None]:
    def line(original: Callable[..., TopicLine], topic: Topic, *args: object) -> TopicLine:
        return change(topic, original(topic, *args))

    return instead(topic_lines, "_line", line)


@planted("delete", "checkpoint", "kill")
def a_snapshot_ends_at_the_last_live_record() -> Iterator[None]:
    def cut(topic: Topic, line: TopicLine) -> TopicLine:
        head = topic.last_live_at_or_below(topic.head)
        return msgspec.structs.replace(line, head=head)

    return _line_with(cut)


@planted("delete", "checkpoint", "kill")
def a_snapshot_forgets_deletes_that_are_not_on_disk() -> Iterator[None]:
    def none(
        original: Callable[..., Iterator[tuple[int, int]]], captured: topic_lines.TopicCapture
    ) -> Iterator[tuple[int, int]]:
        del original, captured
        return iter(())

    return instead(checkpoint, "deleted_runs", none)


@planted("checkpoint", "kill")
def a_checkpoint_claims_frames_it_has_not_captured() -> Iterator[None]:
    def finished(
        original: Callable[..., TopicLine],
        checkpointer: Checkpointer,
        captured: topic_lines.TopicCapture,
    ) -> TopicLine:
        line = original(checkpointer, captured)
        return msgspec.structs.replace(line, lfn=line.lfn + 5)

    return instead(Checkpointer, "_finished_line", finished)

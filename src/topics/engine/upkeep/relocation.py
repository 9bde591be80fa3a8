"""Moving old sealed segments of every topic to the cold tier, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from topics.core.topic import Topic
from topics.engine.effects import PAUSE, Io, Op, stepwise
from topics.engine.kernel import Kernel
from topics.engine.reads.history import segments_of
from topics.storage.segments.segment import COLD, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.tiering import (
    Moved,
    Outcome,
    Relocated,
    candidates,
    has_hot_files,
    relocate,
    remove_hot,
)

TOPICS_BETWEEN_PAUSES = 1000


def relocate_old(kernel: Kernel, is_settled: Callable[[int, int], bool]) -> Op[None]:
    """Copy, verify, flip and remove every segment that is due; errors leave it hot for now.

    `is_settled(topic_id, first_seq)` tells which segments no snapshot on disk expects to grow.
    """
    store, settings = kernel.segments, kernel.settings
    if store is None or settings.cold_dir is None:
        return
    for count, topic in enumerate(list(kernel.catalog), 1):
        if count % TOPICS_BETWEEN_PAUSES == 0:
            yield PAUSE
        history = segments_of(topic)
        for seg in [s for s in history.sealed if s.tier == COLD]:
            if has_hot_files(store, topic.id, seg):
                yield from stepwise(remove_hot(store, topic.id, seg))
        due = candidates(
            history.sealed,
            retain_segments=settings.hot_retain_segments,
            retain_bytes=settings.hot_retain_bytes,
        )
        for seg in due:
            if topic.id in kernel.catalog.by_id and is_settled(topic.id, seg.first):
                yield from _move(kernel, store, topic, seg)
            yield PAUSE


def _move(kernel: Kernel, store: SegmentStore, topic: Topic, seg: Segment) -> Op[None]:
    steps = relocate(store, topic.id, seg, now_ms=kernel.clock.now_ms())
    answer: bool | None = None
    while True:
        outcome, wanted = yield Io(partial(_advance, steps, answer))
        if outcome is not None:
            break
        answer = None
        if isinstance(wanted, Relocated):
            submission = kernel.submit([wanted.fact], topic_id=topic.id, durable=True)
            if not submission.done:
                yield submission
            answer = submission.error is None
        yield PAUSE
    if isinstance(outcome, Moved):
        segments_of(topic).move(outcome.segment.first, COLD)
        kernel.dirty.add(topic.id)


def _advance(
    steps: Generator[Relocated | None, bool | None, Outcome], answer: bool | None
) -> tuple[Outcome | None, Relocated | None]:
    """One step: its outcome if it was the last, else what it asks for."""
    try:
        return None, steps.send(answer)
    except StopIteration as finished:
        return finished.value, None

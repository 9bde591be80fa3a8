"""What the snapshot on disk says, held against what memory says."""

from __future__ import annotations

import msgspec

from topics.core.topic import Topic
from topics.embedded.log import Log
from topics.engine.reads.history import SegmentHistory
from topics.engine.upkeep import topic_lines
from topics.storage.snapshots.chain import read_chain
from topics.storage.snapshots.lines import TopicLine


def check_snapshot(log: Log, latest: int = 0) -> None:
    """A snapshot tells of every topic that has no mark what a capture would tell now.

    So a change without a mark is found out before a restart forgets it. `latest` is the highest
    time that any clock has shown: idempotency keys outside their window leave without a mark.
    """
    kernel, upkeep = log._engine.kernel, log._engine.upkeep
    assert kernel.segments is not None
    assert upkeep is not None
    checkpointer = upkeep._checkpointer
    track = checkpointer._snapshots.newest
    assert track is not None
    numbers = [file.number for file in track.files]
    store_id = checkpointer._identity.store_id
    fs, data_dir = kernel.segments.fs, kernel.segments.data_dir
    chain = read_chain(fs, data_dir, numbers[-1], store_id, present=numbers)
    assert chain.files == track.files
    told = {line.id: line for line in chain.snapshot.topics}
    for topic in kernel.catalog:
        if topic.id not in kernel.dirty:
            over = latest - topic.config.idempotency_window_ms
            told_now = _comparable(_now(topic), over)
            assert _comparable(told[topic.id], over) == told_now, topic.name
    assert told.keys() - kernel.catalog.by_id.keys() <= kernel.dirty
    routers = {line.name: line for line in chain.snapshot.routers}
    now = {router.name: topic_lines.router_line(router) for router in kernel.catalog.routers}
    changed = {name for name in routers | now if routers.get(name) != now.get(name)}
    assert changed <= kernel.dirty_routers


def _now(topic: Topic) -> TopicLine:
    line = topic_lines._line(topic, topic.volatile_spans(), 0, 0)
    deleted = list(topic.deleted.between(line.exact_from, line.head))
    keys = [(key, e.first_seq, e.count, e.head, e.ts) for key, e in topic.keys.items()]
    keys = [key for key in keys if key[1] not in topic.volatile_spans()]
    line = msgspec.structs.replace(line, deleted_runs=deleted, keys=keys)
    history = topic.history
    assert isinstance(history, SegmentHistory)
    return topic_lines.with_segments(line, history.sealed, history.active, [])


def _comparable(line: TopicLine, keys_over: int) -> TopicLine:
    """Without what may be out of date in a snapshot: no restart looks at it."""
    config = msgspec.json.decode(line.config)
    return msgspec.structs.replace(
        line,
        lfn=0,
        dropped=[],
        ages=[],
        keys=[key for key in line.keys if key[4] >= keys_over],
        queue=line.queue if config.get("leases_durable") else None,
    )

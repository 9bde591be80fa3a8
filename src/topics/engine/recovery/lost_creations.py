"""Topics whose creation stood in a damaged part of the log: what the rest of the log tells of them.

Records, passes, heads and routers name a topic by its id. Salvage makes every such topic again, so
that its records are served, and announces what is missing. The name and the type come from
whatever else states them: a change of settings, a router, a staged commit. Where nothing does, the
name is made up. Caps and TTL are left out until a change of settings states them, so that no
record is removed by a limit that may never have been set.

A topic made again is logged as created by the new run. The next salvage of the same log finds that
creation behind the topic's records and uses it, so the topic keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from topics.core.config import parse_json
from topics.core.durability import CLASSES
from topics.core.facts import (
    Appended,
    CheckpointMarked,
    ClosedCleanly,
    ConfigUpdated,
    Deleted,
    Fact,
    Forwarded,
    LeaseChanged,
    RouterCreated,
    StageCommitted,
    TopicCreated,
    TopicDeleted,
)
from topics.core.topic import SEQ_BASE
from topics.storage.frames.header import FLAG_DURABLE
from topics.storage.wal.scan import GenerationScan
from topics.topic_settings import Durability, TopicConfig


class Recreated(msgspec.Struct, frozen=True):
    """A topic to be made again, before the first fact that needs it."""

    fact: TopicCreated
    is_logged: bool  # an earlier salvage made it and has said so
    has_made_up_name: bool
    may_be_volatile: bool  # no record of it was ever logged: perhaps none ever is

    @property
    def warning(self) -> str:
        name = "a name made up for it" if self.has_made_up_name else "its name"
        return (
            f"the creation of topic {self.fact.topic_id} was lost in the damaged part of the log; "
            f"the topic goes on as {self.fact.name!r}, {name}, without the caps, TTL and other "
            "settings it had: set them again"
        )


class _Trace(msgspec.Struct):
    """What the log shows of one topic."""

    is_seen: bool = False  # a fact of the topic itself was found
    made_at_first: bool = False  # the first of them is its creation
    created: TopicCreated | None = None
    dropped: bool = False
    name: str | None = None
    is_queue: bool = False
    durability: Durability | None = None  # None: no record was logged
    ts: int = 0


def recreated(
    parts: Iterable[GenerationScan], *, is_known: Callable[[int], bool], taken: Iterable[str]
) -> list[Recreated]:
    """Topics that the parts mention and never create, in the order of their ids.

    `parts` come in the order of replay. `is_known` tells ids that the snapshot has, or had before
    they were dropped; `taken` are the names of the topics it has.
    """
    traces: dict[int, _Trace] = {}
    for part in parts:
        for _, fact in part.entries:
            _note(traces, fact)
    names: dict[str, int] = {}  # the highest id that had each name
    for topic_id, trace in traces.items():
        if trace.name is not None:
            names[trace.name] = max(names.get(trace.name, 0), topic_id)
    used = {*taken, *names}
    found = []
    for topic_id in sorted(traces):
        trace = traces[topic_id]
        if is_known(topic_id) or trace.made_at_first or trace.dropped:
            continue
        if trace.name is not None and names[trace.name] > topic_id:
            continue  # another topic has its name since: it was dropped, and the drop was lost too
        name = trace.name or _free_name(topic_id, used)
        used.add(name)
        found.append(
            Recreated(
                trace.created or _creation(topic_id, name, trace),
                is_logged=trace.created is not None,
                has_made_up_name=trace.name is None,
                may_be_volatile=trace.durability is None,
            )
        )
    return found


def _creation(topic_id: int, name: str, trace: _Trace) -> TopicCreated:
    durability = trace.durability or "disk"
    config = TopicConfig(
        type="queue" if trace.is_queue else "log",
        durability=durability,
        durable=CLASSES[durability].needs_sync,
    )
    return TopicCreated(topic_id, trace.ts, name, config.to_json(), topic_id, SEQ_BASE)


def _free_name(topic_id: int, used: set[str]) -> str:
    name = f"salvaged-{topic_id}"
    while name in used:
        name += "-x"
    return name


def _note(traces: dict[int, _Trace], fact: Fact) -> None:
    topic_id = getattr(fact, "topic_id", 0)
    if topic_id:
        _note_own(traces, topic_id, fact)
        return
    for other, name in _mentioned(fact):
        trace = traces.setdefault(other, _Trace())
        trace.name = trace.name or name


def _note_own(traces: dict[int, _Trace], topic_id: int, fact: Fact) -> None:
    """One fact of the topic itself."""
    trace = traces.setdefault(topic_id, _Trace())
    if not trace.is_seen:
        trace.is_seen, trace.ts = True, _time_of(fact)
        trace.made_at_first = isinstance(fact, TopicCreated)
    match fact:
        case TopicCreated():
            trace.created, trace.name = fact, fact.name
        case ConfigUpdated():
            trace.name = trace.name or fact.name
            trace.is_queue = parse_json(fact.config).is_queue
        case TopicDeleted():
            trace.dropped = True
        case LeaseChanged() | Deleted(seqs=(_, *_)):
            trace.is_queue = True  # deletes by seq are acks
        case Appended() if trace.durability is None:
            trace.durability = "fsync" if fact.flags[0] & FLAG_DURABLE else "disk"
        case Forwarded() if trace.durability is None:
            trace.durability = "disk"
        case _:
            pass


def _time_of(fact: Fact) -> int:
    return fact.times[0] if isinstance(fact, Appended) else fact.ts


def _mentioned(fact: Fact) -> Iterator[tuple[int, str | None]]:
    """Topics that a fact of no topic speaks of, with their names where it has them."""
    match fact:
        case RouterCreated():
            yield fact.source_id, fact.source
            yield fact.dest_id, fact.dest
        case StageCommitted():
            names = msgspec.json.decode(fact.result, type=dict[str, object])
            yield from zip((topic_id for topic_id, _, _ in fact.topics), names, strict=False)
        case ClosedCleanly():
            yield from ((topic_id, None) for topic_id, _ in fact.heads)
        case CheckpointMarked():
            yield from ((entry.topic_id, None) for entry in fact.entries)
        case _:
            pass

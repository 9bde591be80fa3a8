"""What must be in a directory after its writer was killed, judged by what the writer had said.

The model is naive on purpose: per topic the live records in order, and how far the cap has eaten.
A kill leaves the page cache alone, so every class but `ephemeral` keeps all that was acknowledged.
The one operation without an answer may have happened, whole, or not at all.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.blackbox.killed_writer import CURSOR, TOPICS

import topics
from topics.embedded import Log
from topics.values import Tombstone

Line = dict[str, Any]
Stored = tuple[str, str | None]
"""Raw JSON and tag."""


@dataclass
class TopicModel:
    """One topic, as its writer was told."""

    cap: int = 0
    live: dict[int, Stored] = field(default_factory=dict)
    head: int = 0
    lost_through: int = 0
    cursor: int | None = None

    def append(self, first: int, records: list[list[Any]]) -> None:
        assert first > self.head, f"seq {first} was handed out before"
        for seq, (raw, tag) in enumerate(records, first):
            self.live[seq] = raw, tag
            self.head = seq
        while self.cap and len(self.live) > self.cap:
            self.lost_through = next(iter(self.live))
            del self.live[self.lost_through]

    def delete(self, step: Line) -> None:
        match, before = step.get("match"), step.get("seq")
        self.live = {
            seq: stored
            for seq, stored in self.live.items()
            if not (_matches(stored[1], match) and (before is None or seq < before))
        }


def _matches(tag: str | None, match: str | None) -> bool:
    if match is None:
        return True
    if match.endswith("*"):
        return tag is not None and tag.startswith(match[:-1])
    return tag == match


@dataclass
class Found:
    """One topic, as the directory has it."""

    live: dict[int, Stored]
    tombstones: list[Tombstone]
    head: int
    cursor: int | None


class Oracle:
    """Follows what writers say, and compares it with what they left."""

    def __init__(self) -> None:
        self.topics = {
            name: TopicModel(cap=config.get("cap_records", 0)) for name, config in TOPICS.items()
        }
        self.acked = 0
        self.pending: Line | None = None
        self._survived: dict[str, bool] = {}  # per key of an unanswered append

    def hear(self, lines: list[Line]) -> None:
        """Take in everything one writer said; an operation without an answer stays pending."""
        for line in lines:
            if "do" in line:
                self.pending = line
            elif "done" in line:
                assert self.pending is not None
                self._answered(self.pending, line)
                self.pending = None

    def _answered(self, step: Line, answer: Line) -> None:
        if step["do"] in ("checkpoint", "maintain"):
            return
        self.acked += 1
        model = self.topics[step["topic"]]
        match step["do"]:
            case "append":
                survived = self._survived.pop(step["key"], False)
                assert answer["deduped"] == survived, "a retry is known by its key, or is new"
                if not survived:
                    model.append(answer["first"], step["records"])
            case "delete":
                model.delete(step)
            case "cursor":
                model.cursor = step["seq"]

    def compare(self, log: Log) -> Line | None:
        """Check every topic; returns an append to be tried again, if one had no answer."""
        found = {name: look(log, name) for name in TOPICS if exists(log, name)}
        step, self.pending = self.pending, None
        again = None
        if step is not None and step["do"] in ("append", "delete", "cursor"):
            again = self._settle(step, found[step["topic"]])
        for name, model in self.topics.items():
            if name in found:
                check(name, model, found[name])
                audit = log.audit(name)
                assert audit.adds_up, audit
                assert audit.live == len(found[name].live), audit
            else:
                assert not model.head, f"{name} is gone"
        return again

    def _settle(self, step: Line, found: Found) -> Line | None:
        """Find out whether the operation without an answer happened, and let the model follow."""
        name = step["topic"]
        model = self.topics[name]
        if step["do"] == "append":
            if name == "a-ephemeral":
                return None
            new = [seq for seq in found.live if seq > model.head]
            if new:
                model.append(min(new), step["records"])
            self._survived[step["key"]] = bool(new)
            return step
        after = deepcopy(model)
        if step["do"] == "delete":
            after.delete(step)
            if found.live == after.live:
                self.topics[name] = after
        elif found.cursor == step["seq"]:
            model.cursor = step["seq"]
        return None


def exists(log: Log, name: str) -> bool:
    try:
        log.state(name)
    except topics.errors.TopicNotFound:
        return False
    return True


def look(log: Log, name: str) -> Found:
    found = Found({}, [], log.state(name).head_seq, None)
    for event in log.follow(name, limit=1000, wait=0.0):
        if isinstance(event, Tombstone):
            found.tombstones.append(event)
        else:
            found.live[event.seq] = event.raw.decode(), event.tag
    for cursor in log.cursors(name):
        assert cursor.cursor == CURSOR
        found.cursor = cursor.seq
    return found


def check(name: str, model: TopicModel, found: Found) -> None:
    assert found.head >= model.head, f"{name}: a seq that was handed out is free again"
    if name == "a-ephemeral":
        assert not found.live, f"{name} kept records"
        gaps = [(gap.gap_from, gap.gap_to) for gap in found.tombstones]
        assert not found.head or gaps == [(1, found.head)], f"{name} announces {gaps}"
        return
    missing = model.live.keys() - found.live.keys()
    invented = found.live.keys() - model.live.keys()
    assert not missing, f"{name} lost acknowledged seqs {sorted(missing)}"
    assert not invented, f"{name} has seqs nobody wrote, or that were deleted: {sorted(invented)}"
    assert found.live == model.live, f"{name} changed the bytes of a record"
    gaps = [(gap.gap_from, gap.gap_to) for gap in found.tombstones]
    wanted = [(1, model.lost_through)] if model.lost_through else []
    assert gaps == wanted, f"{name} announces {gaps}, the cap took {wanted}"
    assert found.cursor == model.cursor, f"{name} has its cursor elsewhere"

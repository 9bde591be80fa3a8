"""What actors remember, and what they find: the naive side of every comparison."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from topics.torture.calls import Answer, Client, Refused

TAGS = ("red", "green", "blue", "blue-dark", None)


class Weather(NamedTuple):
    """What a run lets happen besides kills; some rules cannot be judged in it."""

    clock_jumps: bool = False
    """Time limits may end at any moment."""
    disk_full: bool = False
    """Calls may fail, and what they were about is as before."""


class WrittenRecord(NamedTuple):
    """A record as far as it is compared."""

    text: str
    tag: str | None


class Hand(Protocol):
    """One thread's part in the load."""

    def __call__(self, api: Client, rng: Random) -> None:
        """One step; `Gone` ends the thread."""


class Actor(Protocol):
    """A user of the server, which remembers what the server answered and compares."""

    name: str
    acked: int
    """Calls that changed something and had an answer."""

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        """Everything that is wrong. Settles what had no answer: afterwards nothing is open."""

    def prepare(self, api: Client, rng: Random) -> None:
        """Make sure that the load can go on; calls without an answer are tried again."""

    def hands(self) -> list[Hand]:
        """What to do under load, a thread each."""


@dataclass
class TopicView:
    """A topic as the server shows it."""

    live: dict[int, WrittenRecord] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    head: int = 0
    epoch: int = 0
    evict_floor: int = 1
    config: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [record.text for record in self.live.values()]


def look(api: Client, topic: str) -> TopicView:
    """Read all of a topic, and check what must hold for every topic."""
    state = api.get(f"/v0/topics/{topic}")
    found = TopicView(head=state["head_seq"], epoch=state["epoch"], config=state["config"])
    cursor, newest = 0, 0
    while True:
        asked = {"from_seq": cursor, "limit": 1000, "include_tags": True}
        page = api.post(f"/v0/topics/{topic}/diff", asked)
        if page["tombstone"] is not None:
            found.gaps.append((page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]))
        for record in page["records"]:
            found.live[record["$seq"]] = WrittenRecord(record["data"], record.get("$tag"))
            if record["$ts"] < newest:
                found.problems.append(f"{topic}: the time of seq {record['$seq']} goes back")
            newest = record["$ts"]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    audit = api.get(f"/v0/topics/{topic}/audit")
    found.evict_floor = audit["evict_floor"]
    if found.config["ttl_ms"]:
        # Time went on since they were read.
        for seq in [seq for seq in found.live if seq < found.evict_floor]:
            del found.live[seq]
    found.problems += _arithmetic(topic, found, audit)
    return found


def _arithmetic(topic: str, found: TopicView, audit: Answer) -> Iterator[str]:
    lost = audit["lost_cap"] + audit["lost_ttl"] + audit["lost_crash"]
    written = audit["live"] + audit["deleted"] + lost
    if audit["written"] != written:
        yield f"{topic}: the ledger does not add up: {audit}"
    if audit["head_seq"] != audit["written"] + audit["skipped"] + audit["source_trim"]:
        yield f"{topic}: the ledger does not reach the head: {audit}"
    if audit["live"] != len(found.live):
        yield f"{topic}: {audit['live']} counted as live, {len(found.live)} read"
    for lo, hi in found.gaps:
        covered = [seq for seq in found.live if lo <= seq <= hi]
        if covered:
            yield f"{topic}: {covered} are announced as lost, and there"


@dataclass
class TopicModel:
    """A topic as its only writer knows it."""

    durability: str
    cap: int = 0
    head: int = 0
    lost_through: int = 0
    live: dict[int, WrittenRecord] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    cursor: int | None = None

    def copy(self) -> TopicModel:
        twin = copy(self)
        twin.live, twin.gone = dict(self.live), set(self.gone)
        return twin

    def append(self, first: int, records: list[WrittenRecord]) -> None:
        self.live |= dict(enumerate(records, first))
        self.head = first + len(records) - 1
        self.enforce_cap()

    def enforce_cap(self) -> None:
        while self.cap and len(self.live) > self.cap:
            self.lost_through = next(iter(self.live))
            self._remove(self.lost_through)

    def delete(self, *, match: str | None = None, before: int | None = None) -> None:
        for seq, record in list(self.live.items()):
            if (before is None or seq < before) and (match is None or _fits(record.tag, match)):
                self._remove(seq)

    def _remove(self, seq: int) -> None:
        del self.live[seq]
        self.gone.add(seq)

    def restart(self, head: int) -> None:
        """An ephemeral topic after the death of its process."""
        self.gone |= self.live.keys()
        self.live = {}
        self.head = self.lost_through = head
        self.cursor = None


def _fits(tag: str | None, match: str) -> bool:
    if match.endswith("*"):
        return tag is not None and tag.startswith(match[:-1])
    return tag == match


def differences(life: TopicModel, found: TopicView) -> Iterator[str]:
    """What is not as the writer knows it."""
    missing = life.live.keys() - found.live.keys()
    if missing:
        yield f"acknowledged seqs {sorted(missing)} are lost"
    invented = found.live.keys() - life.live.keys()
    if invented:
        yield f"seqs {sorted(invented)} are there, deleted or never written"
    changed = [seq for seq, record in life.live.items() if found.live.get(seq, record) != record]
    if changed:
        yield f"seqs {changed} hold another record than was written"
    # A disk topic reserves seqs ahead; what a dead process had reserved is skipped.
    if found.head < life.head or (found.head > life.head and life.durability not in RESERVING):
        yield f"the head is {found.head} and was {life.head}"
    wanted = [(1, life.lost_through)] if life.lost_through else []
    if found.gaps != wanted:
        yield f"gaps {found.gaps} are announced, {wanted} were lost"


RESERVING = ("disk", "ephemeral")


class Sightings:
    """Records that readers saw. Whatever was visible once stays that record for ever."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.count = 0

    def see(self, topic: str, seq: int, text: str) -> None:
        with self._lock:
            self.count += 1
            known = self._seen.setdefault(topic, {}).setdefault(seq, text)
        if known != text:
            self.problems.append(f"{topic}: a reader saw {known!r} at {seq} and then {text!r}")

    def compare(self, topic: str, found: TopicView, gone: set[int]) -> Iterator[str]:
        """What readers saw must be there, unless it was removed; then it may be forgotten."""
        for seq, text in self._seen.pop(topic, {}).items():
            now = found.live.get(seq)
            if now is None and seq not in gone:
                yield f"{topic}: a reader saw {text!r} at {seq}, and it is lost"
            elif now is not None and now.text != text:
                yield f"{topic}: a reader saw {text!r} at {seq}, now it is {now.text!r}"

    def forget(self, topic: str) -> None:
        """The topic is empty, as it may be."""
        self._seen.pop(topic, None)


class Labels:
    """Texts that were not used before."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._count = 0
        self._lock = threading.Lock()

    def next(self, rng: Random) -> str:
        with self._lock:
            self._count += 1
            number = self._count
        return f"{self._owner}/{number}/" + "x" * rng.choice((0, 0, 10, 100, 700))


class TopicActor:
    """An actor with a topic of its own, and perhaps others beside it."""

    def __init__(self, name: str, durability: str = "") -> None:
        self.name = name
        self.acked = 0
        self._durability = durability
        self._labels = Labels(name)
        self._exists = False

    @property
    def _path(self) -> str:
        return f"/v0/topics/{self.name}"

    def hands(self) -> list[Hand]:
        return [self._act]

    def _act(self, api: Client, rng: Random) -> None:
        raise NotImplementedError

    def _create(self, api: Client, config: Answer) -> None:
        if not self._exists:
            api.put(self._path, config)
            self._exists = True

    def _look(self, api: Client, *others: str) -> Generator[str, None, list[TopicView]]:
        """What is wrong with the topics by themselves; returns them, none while they are absent."""
        try:
            views = [look(api, topic) for topic in (self.name, *others)]
        except Refused as refused:
            if self._exists or refused.code != "topic_not_found":
                yield f"{self.name}: {refused}"
            return []
        self._exists = True
        for view in views:
            yield from view.problems
        return views

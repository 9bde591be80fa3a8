"""Writers of logs: one per durability class, one with a cap, one whose records expire, a group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from topics.torture.book import (
    TAGS,
    Hand,
    Sightings,
    TopicActor,
    TopicModel,
    TopicView,
    Weather,
    WrittenRecord,
    differences,
)
from topics.torture.calls import Client, Refused

CURSOR = "consumer"


def as_body(records: list[WrittenRecord]) -> list[dict[str, Any]]:
    return [
        {"data": record.text} | ({"tag": record.tag} if record.tag else {}) for record in records
    ]


@dataclass
class Pending:
    """A call without an answer yet: what it would make of the topic."""

    then: Callable[[TopicModel, TopicView], None]
    key: str | None = None
    records: list[WrittenRecord] = field(default_factory=list)
    survived: bool = False


class LogWriter(TopicActor):
    """Appends, deletes, moves a cursor and changes a cap, in a topic of its own."""

    def __init__(
        self, durability: str, *, cap: int, sightings: Sightings, weather: Weather
    ) -> None:
        super().__init__(f"{'capped' if cap else 'log'}-{durability}", durability)
        self._cap = cap
        self._life = TopicModel(durability, cap)
        self._sightings = sightings
        self._pending: Pending | None = None
        self._weather = weather

    # Under load

    def _act(self, api: Client, rng: Random) -> None:
        dice = rng.random()
        if dice < 0.06:
            self._delete(api, match=rng.choice(("red", "blue*")))
        elif dice < 0.14:
            self._delete(api, before=max(1, self._life.head - rng.randrange(5, 80)))
        elif dice < 0.20:
            self._move_cursor(api, max(0, self._life.head - rng.randrange(1, 30)))
        elif dice < 0.23 and self._cap:
            self._configure(api, rng.choice((self._cap, self._cap // 2, self._cap * 2)))
        else:
            count = rng.choice((1, 1, 1, 2, 5, 10))
            records = [
                WrittenRecord(self._labels.next(rng), rng.choice(TAGS)) for _ in range(count)
            ]
            self._append(api, records, key=records[0].text[:40])

    def _append(self, api: Client, records: list[WrittenRecord], *, key: str) -> None:
        def then(life: TopicModel, found: TopicView) -> None:
            new = [seq for seq in found.live if seq > life.head]
            life.append(min(new, default=life.head + 1), records)

        body = {"records": as_body(records), "idempotency_key": key}
        self._pending = Pending(then, key, records)
        try:
            ack = api.post(f"{self._path}?return_seqs=0", body)
        except Refused:
            self._pending = None
            return
        self._life.append(ack["first_seq"], records)
        self._answered()

    def _delete(self, api: Client, *, match: str | None = None, before: int | None = None) -> None:
        body = {"match": match} if before is None else {"before_seq": before}
        self._pending = Pending(lambda life, found: life.delete(match=match, before=before))
        api.post(f"{self._path}/delete", body)
        self._life.delete(match=match, before=before)
        self._answered()

    def _move_cursor(self, api: Client, seq: int) -> None:
        def then(life: TopicModel, found: TopicView) -> None:
            life.cursor = seq

        self._pending = Pending(then)
        api.put(f"{self._path}/cursors/{CURSOR}", {"seq": seq})
        self._life.cursor = seq
        self._answered()

    def _configure(self, api: Client, cap: int) -> None:
        def then(life: TopicModel, found: TopicView) -> None:
            life.cap = cap
            life.enforce_cap()

        self._pending = Pending(then)
        api.put(self._path, self._config(cap))
        then(self._life, TopicView())
        self._answered()

    def _config(self, cap: int) -> dict[str, Any]:
        # A retry may come many cycles later, and cycles may be slow.
        return {
            "durability": self._durability,
            "cap_records": cap,
            "idempotency_window_ms": 86_400_000,
        }

    def _answered(self) -> None:
        self._pending = None
        self.acked += 1

    # After a restart

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        for found in (yield from self._look(api)):
            if restarted and self._durability == "ephemeral":
                yield from self._judge_ephemeral(found)
            else:
                yield from self._judge_kept(found, self._read_cursor(api))
                yield from self._sightings.compare(self.name, found, self._life.gone)

    def _judge_ephemeral(self, found: TopicView) -> Iterator[str]:
        if found.live:
            yield f"{self.name}: kept {len(found.live)} records over a restart"
        if found.head < self._life.head:
            yield f"{self.name}: the head is {found.head} and was {self._life.head}"
        if found.head and found.gaps != [(1, found.head)]:
            yield f"{self.name}: announces {found.gaps} instead of all {found.head} seqs"
        self._life.restart(found.head)
        self._pending = None
        self._sightings.forget(self.name)

    def _judge_kept(self, found: TopicView, cursor: int | None) -> Iterator[str]:
        lives = [self._life]
        if self._pending is not None:
            after = self._life.copy()
            self._pending.then(after, found)
            lives.append(after)
        complaints: list[str] = []
        for number, life in enumerate(lives):
            wrong = list(differences(life, found))
            if cursor != life.cursor:
                wrong.append(f"the cursor is {cursor} and was {life.cursor}")
            if self._cap and found.config["cap_records"] != life.cap:
                wrong.append(f"the cap is {found.config['cap_records']} and was {life.cap}")
            if not wrong:
                self._life = life
                life.head = found.head
                if self._pending is not None:
                    self._pending.survived = number == 1
                return
            complaints = complaints or [f"{self.name}: {problem}" for problem in wrong]
        yield from complaints

    def _read_cursor(self, api: Client) -> int | None:
        found = api.get(f"{self._path}/cursors")["cursors"]
        return next((entry["seq"] for entry in found if entry["cursor"] == CURSOR), None)

    def prepare(self, api: Client, rng: Random) -> None:
        self._create(api, self._config(self._cap))
        pending = self._pending
        if pending is None or pending.key is None:
            self._pending = None
            return
        self._again(api, pending)

    def _again(self, api: Client, pending: Pending) -> None:
        """A retry under the same key is known if the first try survived, and new if not."""
        assert pending.key is not None
        if not pending.survived or self._weather.clock_jumps:
            if pending.survived:
                self._pending = None  # its key may have been forgotten meanwhile
            else:
                self._append(api, pending.records, key=pending.key)
            return
        body = {"records": as_body(pending.records), "idempotency_key": pending.key}
        ack = api.post(f"{self._path}?return_seqs=0", body)
        if not ack["deduped"]:
            raise AssertionError(f"{self.name}: a known key appended again: {ack}")
        self._pending = None


class Expiring(TopicActor):
    """Records that live for a moment; what is gone stays gone, and nothing goes too early."""

    TTL_MS = 400

    def __init__(self, durability: str, weather: Weather) -> None:
        super().__init__(f"expiring-{durability}", durability)
        self._weather = weather
        self._sent: dict[str, float] = {}  # text -> when, on our clock
        self._acked: dict[int, str] = {}
        self._floor = 1

    def _act(self, api: Client, rng: Random) -> None:
        texts = [self._labels.next(rng) for _ in range(rng.choice((1, 3)))]
        self._sent |= dict.fromkeys(texts, time.monotonic())
        body = {"records": [{"data": text} for text in texts]}
        first = api.post(self._path, body)["first_seq"]
        self._acked |= dict(enumerate(texts, first))
        self.acked += 1

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        for found in (yield from self._look(api)):
            yield from self._judge(found)

    def _judge(self, found: TopicView) -> Iterator[str]:
        if found.evict_floor < self._floor:
            yield f"{self.name}: the floor is {found.evict_floor} and was {self._floor}"
        self._floor = found.evict_floor
        young = time.monotonic() - self.TTL_MS / 1000
        for seq, text in self._acked.items():
            record = found.live.get(seq)
            if record is not None and record.text != text:
                yield f"{self.name}: seq {seq} holds {record.text!r} instead of {text!r}"
            elif record is None and seq >= found.evict_floor:
                yield f"{self.name}: {text!r} at {seq} is lost without a word"
            elif record is None and self._sent[text] > young and not self._weather.clock_jumps:
                yield f"{self.name}: {text!r} at {seq} went before its time"
        for seq, record in found.live.items():
            if record.text not in self._sent:
                yield f"{self.name}: seq {seq} holds {record.text!r}, which nobody wrote"
        self._acked = {seq: record.text for seq, record in found.live.items()}

    def prepare(self, api: Client, rng: Random) -> None:
        self._create(api, {"durability": self._durability, "ttl_ms": self.TTL_MS})


class WriterGroup(TopicActor):
    """Several writers in one topic: their writes are whole, and where the server said."""

    SIZE = 3

    def __init__(self, durability: str, sightings: Sightings) -> None:
        super().__init__(f"crowd-{durability}", durability)
        self._sightings = sightings
        self._lock = threading.Lock()
        self._writes: dict[str, list[str]] = {}  # without an answer, by their first text
        self._known: dict[int, str] = {}
        self._doomed: dict[int, str] = {}  # by a delete without an answer
        self._gone: set[int] = set()

    def hands(self) -> list[Hand]:
        return [self._act] * self.SIZE

    def _act(self, api: Client, rng: Random) -> None:
        texts = [self._labels.next(rng) for _ in range(rng.choice((1, 2, 7)))]
        with self._lock:
            self._writes[texts[0]] = texts
        body = {"records": [{"data": text} for text in texts]}
        first = api.post(self._path, body)["first_seq"]
        with self._lock:
            del self._writes[texts[0]]
            self._known |= dict(enumerate(texts, first))
            self.acked += 1

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        for found in (yield from self._look(api)):
            yield from self._judge(found)

    def _judge(self, found: TopicView) -> Iterator[str]:
        at = {record.text: seq for seq, record in found.live.items()}
        for seq, text in self._known.items():
            if at.get(text) != seq:
                yield f"{self.name}: {text!r} was acknowledged at {seq} and is at {at.get(text)}"
        for texts in self._writes.values():
            seqs = [at[text] for text in texts if text in at]
            if seqs and seqs != list(range(seqs[0], seqs[0] + len(texts))):
                yield f"{self.name}: of {texts} only a part is there, at {seqs}"
        back = self._gone & found.live.keys() - self._doomed.keys()
        if back:
            yield f"{self.name}: seqs {sorted(back)} were deleted and are back"
        sent = {text for texts in self._writes.values() for text in texts}
        invented = at.keys() - sent - set(self._known.values()) - set(self._doomed.values())
        if invented:
            yield f"{self.name}: nobody wrote {sorted(invented)}"
        if len(at) != len(found.live):
            yield f"{self.name}: something is there twice"
        yield from self._sightings.compare(self.name, found, self._gone)
        self._writes, self._doomed = {}, {}
        self._known = {seq: record.text for seq, record in found.live.items()}
        self._gone -= self._known.keys()

    def prepare(self, api: Client, rng: Random) -> None:
        self._create(api, {"durability": self._durability})
        if len(self._known) > 400:
            before = max(self._known) - 100
            self._doomed = {seq: text for seq, text in self._known.items() if seq < before}
            self._gone |= self._doomed.keys()
            self._known = {seq: text for seq, text in self._known.items() if seq >= before}
            api.post(f"{self._path}/delete", {"before_seq": before})
            self._doomed = {}

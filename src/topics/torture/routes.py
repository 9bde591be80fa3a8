"""Routers under kills: destinations equal their filtered source, and copies keep their seqs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from topics.torture.book import Sightings, TopicActor, TopicView, WrittenRecord, look
from topics.torture.calls import Client
from topics.torture.server import PATIENCE_S, Stuck
from topics.torture.writers import as_body

SOURCE = "routed"
KEPT = 60
"""Records that a topic keeps when there are too many to compare quickly."""


class RouteRule(NamedTuple):
    source: str
    dest: str
    only: str | None = None
    guarantee: str = "at_least_once"


ROUTES = (
    RouteRule(SOURCE, "copy-all"),
    RouteRule(SOURCE, "copy-even", only="even"),
    RouteRule("copy-even", "copy-chain", only="even"),
    RouteRule(SOURCE, "copy-once", guarantee="exactly_once"),
)
DESTS = {route.dest: route for route in ROUTES}


class RouterActor(TopicActor):
    """Writes to a source with four routers behind it, one of them behind another."""

    def __init__(self, durability: str, sightings: Sightings) -> None:
        super().__init__(SOURCE, durability)
        self._sightings = sightings
        self._written: list[WrittenRecord] = []  # all that the source ever had, in order
        self._pending: list[WrittenRecord] = []
        self._trimmed: dict[str, int] = {}  # topic -> everything below was deleted, or may be
        self._trim_is_sure: dict[str, bool] = {}
        self._seqs: dict[str, dict[int, str]] = {dest: {} for dest in DESTS}
        self._prepared = False

    def _act(self, api: Client, rng: Random) -> None:
        if rng.random() < 0.25:
            self._read(api, rng.choice(list(DESTS)))
            return
        count = rng.choice((1, 2, 5))
        records = [
            WrittenRecord(self._labels.next(rng), rng.choice(("even", "odd"))) for _ in range(count)
        ]
        self._append(api, records)

    def _append(self, api: Client, records: list[WrittenRecord]) -> None:
        self._pending = records
        body = {"records": as_body(records), "idempotency_key": records[0].text[:40]}
        api.post(f"/v0/topics/{SOURCE}?return_seqs=0", body)
        self._written += records
        self._pending = []
        self.acked += 1

    def _read(self, api: Client, dest: str) -> None:
        """The newest copies, as a reader sees them: they may not change any more."""
        known = self._seqs[dest]
        page = api.post(f"/v0/topics/{dest}/diff", {"from_seq": max(known, default=0)})
        known |= {record["$seq"]: record["data"] for record in page["records"]}

    # After a restart

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        views = yield from self._look(api)
        for source in views:
            yield from self._judge_source(source)
        if not views or not self._prepared:
            return
        if restarted:
            self._wait_for_copies(api)
        for dest, route in DESTS.items():
            found = look(api, dest)
            yield from found.problems
            yield from self._judge_copies(dest, route, found, complete=restarted)

    def _judge_source(self, found: TopicView) -> Iterator[str]:
        here = list(found.live.values())
        for expected in (self._written, self._written + self._pending):
            if self._is_tail(SOURCE, here, expected):
                self._written, self._pending = expected, []
                break
        else:
            yield f"{SOURCE}: has {here[-8:]} at its end, written were {self._written[-8:]}"
        gone = {seq for seq in range(1, found.head + 1) if seq not in found.live}
        yield from self._sightings.compare(SOURCE, found, gone)

    def _is_tail(
        self, topic: str, here: list[WrittenRecord], expected: list[WrittenRecord]
    ) -> bool:
        """Whether `here` is what is left of `expected` after what was trimmed off its front."""
        kept = expected[self._trimmed.get(topic, 0) :]
        if here == kept:
            return True
        # A trim without an answer may not have happened.
        return (
            not self._trim_is_sure.get(topic, True)
            and here == expected[len(expected) - len(here) :]
        )

    def _wait_for_copies(self, api: Client) -> None:
        """Until each router has counted exactly as many copies as there are to make."""
        due = {f"to-{dest}": len(self._due(route)) for dest, route in DESTS.items()}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            routers = api.get("/v0/routers")["routers"]
            made = {r["router"]: r["forwarded_total"] for r in routers if r["router"] in due}
            if made == due:
                return
            if time.monotonic() > deadline:
                raise Stuck(f"routers have made {made} copies instead of {due}")
            time.sleep(0.005)

    def _due(self, route: RouteRule) -> list[WrittenRecord]:
        return [record for record in self._written if route.only in (None, record.tag)]

    def _judge_copies(
        self, dest: str, route: RouteRule, found: TopicView, *, complete: bool
    ) -> Iterator[str]:
        here = list(found.live.values())
        due = self._due(route)
        if complete and not self._is_tail(dest, here, due):
            yield f"{dest}: has {len(here)} copies and not the {len(due)} that are due: {here[-5:]}"
        if len(set(here)) != len(here):
            yield f"{dest}: has something twice"
        for seq, text in self._seqs[dest].items():
            now = found.live.get(seq)
            if now is not None and now.text != text:
                yield f"{dest}: the copy at {seq} was {text!r} and is {now.text!r}"
        self._seqs[dest] = {seq: record.text for seq, record in found.live.items()}
        gone = {seq for seq in range(1, found.head + 1) if seq not in found.live}
        yield from self._sightings.compare(dest, found, gone)

    def prepare(self, api: Client, rng: Random) -> None:
        self._create(api, {"durability": self._durability})
        if not self._prepared:
            for dest in DESTS:
                api.put(f"/v0/topics/{dest}", {"durability": self._durability})
            for route in ROUTES:
                body = {
                    "source": route.source,
                    "dest": route.dest,
                    "filter": route.only,
                    "guarantee": route.guarantee,
                }
                api.put(f"/v0/routers/to-{route.dest}", body)
            self._prepared = True
        for topic in (SOURCE, *DESTS):
            self._trim(api, topic)

    def _trim(self, api: Client, topic: str) -> None:
        """Keep topics short; everything below was forwarded, because there are no writes now."""
        state = api.get(f"/v0/topics/{topic}")
        if state["count"] > 4 * KEPT:
            page = api.post(f"/v0/topics/{topic}/diff", {"limit": state["count"] - KEPT})
            before = page["records"][-1]["$seq"] + 1
            self._trimmed[topic] = self._trimmed.get(topic, 0) + len(page["records"])
            self._trim_is_sure[topic] = False
            api.post(f"/v0/topics/{topic}/delete", {"before_seq": before})
            self._trim_is_sure[topic] = True

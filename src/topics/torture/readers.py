"""Readers like Spark's: a plan, then its ranges page by page, as JSON or as Arrow."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from random import Random

from topics.torture.book import Hand, Sightings
from topics.torture.calls import Client, Refused

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
ALL = {"from_seq": 1, "to_seq": 1 << 40, "target_bytes": 2000}
FORMS = (JSON, ARROW) if importlib.util.find_spec("pyarrow") else (JSON,)


class Readers:
    """Two readers of all topics; every record that they saw must stay."""

    def __init__(self, topics: Sequence[str], sightings: Sightings) -> None:
        self.name = "readers"
        self.acked = 0
        self._topics = topics
        self._sightings = sightings
        self._problems: list[str] = []

    def hands(self) -> list[Hand]:
        return [self._act, self._act]

    def _act(self, api: Client, rng: Random) -> None:
        topic = rng.choice(self._topics)
        try:
            plan = api.post(f"/v0/topics/{topic}/plan", ALL)
        except Refused:
            return  # it does not exist yet
        expected = plan["evict_floor"]
        for lo, hi, _, _ in plan["ranges"][:8]:
            if lo > expected:
                self._problems.append(f"{topic}: the plan leaves out {expected}..{lo - 1}")
            expected = hi + 1
            self._read(api, topic, lo, hi, form=rng.choice(FORMS))

    def _read(self, api: Client, topic: str, lo: int, hi: int, *, form: str) -> None:
        path = f"/v0/topics/{topic}/records?from_seq={lo - 1}&to_seq={hi}&limit=1000"
        page = api.fetch("GET", path, accept=form)
        before = lo - 1
        for seq, text in (_json_rows if form == JSON else _arrow_rows)(page):
            if not before < seq <= hi:
                self._problems.append(f"{topic}: seq {seq} after {before} in a page up to {hi}")
            before = seq
            self._sightings.see(topic, seq, text)

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        yield from self._problems
        yield from self._sightings.problems
        self._problems = []
        self._sightings.problems = []

    def prepare(self, api: Client, rng: Random) -> None:
        """They read what others have made."""


def _json_rows(page: bytes) -> Iterator[tuple[int, str]]:
    for record in json.loads(page)["records"]:
        yield record["$seq"], record["data"]


def _arrow_rows(page: bytes) -> Iterator[tuple[int, str]]:
    import pyarrow as pa  # noqa: PLC0415 - an extra; without it pages are read as JSON

    with pa.ipc.open_stream(page) as stream:
        table = stream.read_all()
    for seq, data in zip(table["seq"].to_pylist(), table["data"].to_pylist(), strict=True):
        yield seq, json.loads(data)

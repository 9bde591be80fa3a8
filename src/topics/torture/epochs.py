"""Staged commits, as a streaming sink makes them: an epoch is in all its topics or in none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from topics.torture.book import Hand, Labels, Sightings, TopicView, Weather, look
from topics.torture.calls import Client, Refused

TARGETS: Mapping[str, str] = {"lake-a": "fsync", "lake-b": "disk", "lake-c": "fsync"}
KEPT = 60


@dataclass
class Epoch:
    """The epoch under way, and how far it has come."""

    number: int
    parts: list[list[tuple[str, str]]]  # per part: topic and text
    attempt: int = 0
    is_staged: bool = False

    def texts(self, topic: str) -> list[str]:
        """What a commit appends to a topic: by part, then by row."""
        return [text for part in self.parts for name, text in part if name == topic]

    @property
    def refs(self) -> list[list[int]]:
        return [[part, self.attempt] for part in range(len(self.parts))]


@dataclass
class SinkActor:
    """Stages two parts and commits them, epoch after epoch."""

    sightings: Sightings
    weather: Weather
    name: str = "sink"
    acked: int = 0
    _epoch: Epoch | None = None
    _last: int = 0
    _rows: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in TARGETS})
    _sure: dict[str, bool] = field(default_factory=dict)
    _result: dict[str, Any] = field(default_factory=dict)
    _exists: bool = False
    _problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._labels = Labels(self.name)

    def hands(self) -> list[Hand]:
        return [self._act]

    def _act(self, api: Client, rng: Random) -> None:
        if self._epoch is None:
            parts = [
                [
                    (topic, self._labels.next(rng))
                    for topic in TARGETS
                    for _ in range(rng.choice((1, 3)))
                ]
                for _ in range(2)
            ]
            self._epoch = Epoch(self._last + 1, parts)
        self._finish(api, self._epoch)
        if rng.random() < 0.2:
            self._commit_again(api)

    def _finish(self, api: Client, epoch: Epoch) -> None:
        if not epoch.is_staged:
            epoch.attempt += 1
            for number, part in enumerate(epoch.parts):
                rows = [{"topic": topic, "data": text} for topic, text in part]
                path = f"/v0/stages/{self.name}/{epoch.number}/{number}/{epoch.attempt}"
                api.post(path, {"records": rows})
            epoch.is_staged = True
        path = f"/v0/stages/{self.name}/{epoch.number}/commit"
        try:
            answer = api.post(path, {"parts": epoch.refs})
        except Refused as refused:
            # A clock that went ahead ended the time of the stages.
            if refused.code != "not_found" or not self.weather.clock_jumps:
                raise
            epoch.is_staged = False
            return
        self._committed(epoch, answer)

    def _committed(self, epoch: Epoch, answer: dict[str, Any]) -> None:
        if answer["deduped"]:
            self._problems.append(f"{self.name}: epoch {epoch.number} was committed by nobody else")
        for topic in TARGETS:
            self._rows[topic] += epoch.texts(topic)
        self._result = answer["topics"]
        self._last, self._epoch = epoch.number, None
        self.acked += 1

    def _commit_again(self, api: Client) -> None:
        """An epoch is committed once, however often it is asked for."""
        path = f"/v0/stages/{self.name}/{self._last}/commit"
        answer = api.post(path, {"parts": [[0, 0], [1, 0]]})
        if not answer["deduped"] or answer["topics"] != self._result:
            self._problems.append(f"{self.name}: epoch {self._last} answers {answer} again")

    # After a restart

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        try:
            found = {topic: look(api, topic) for topic in TARGETS}
        except Refused as refused:
            if self._exists or refused.code != "topic_not_found":
                yield f"{self.name}: {refused}"
            return
        self._exists = True
        yield from self._problems
        self._problems = []
        for topic, shown in found.items():
            yield from shown.problems
            gone = {seq for seq in range(1, shown.head + 1) if seq not in shown.live}
            yield from self.sightings.compare(topic, shown, gone)
        yield from self._judge_rows(found)

    def _judge_rows(self, found: dict[str, TopicView]) -> Iterator[str]:
        epoch = self._epoch
        without = [topic for topic in TARGETS if self._has(topic, found[topic], [])]
        if len(without) == len(TARGETS):
            return
        if epoch is not None and all(
            self._has(topic, found[topic], epoch.texts(topic)) for topic in TARGETS
        ):
            self._adopt(epoch, found)
            return
        for topic, shown in found.items():
            if topic not in without:
                yield (
                    f"{topic}: ends with {shown.texts[-8:]}, committed were "
                    f"{self._rows[topic][-8:]}, under way {epoch and epoch.texts(topic)}"
                )

    def _has(self, topic: str, shown: TopicView, more: list[str]) -> bool:
        wanted = self._rows[topic] + more
        if self._sure.get(topic, True):
            return shown.texts == wanted
        return shown.texts == wanted[len(wanted) - len(shown.texts) :] and len(shown.texts) >= KEPT

    def _adopt(self, epoch: Epoch, found: dict[str, TopicView]) -> None:
        """The commit without an answer happened."""
        self._result = {}
        for topic in TARGETS:
            texts = epoch.texts(topic)
            self._rows[topic] += texts
            seqs = [seq for seq, record in found[topic].live.items() if record.text in texts]
            self._result[topic] = {
                "first_seq": seqs[0],
                "last_seq": seqs[-1],
                "count": len(seqs),
            }
        self._last, self._epoch = epoch.number, None

    def prepare(self, api: Client, rng: Random) -> None:
        for topic, durability in TARGETS.items():
            if not self._exists:
                api.put(f"/v0/topics/{topic}", {"durability": durability})
        self._exists = True
        if self._epoch is not None:
            self._finish(api, self._epoch)
        elif self._last:
            self._commit_again(api)
        for topic in TARGETS:
            self._trim(api, topic)

    def _trim(self, api: Client, topic: str) -> None:
        found = look(api, topic)
        self._rows[topic] = found.texts
        self._sure[topic] = True
        if len(found.live) > 4 * KEPT:
            self._sure[topic] = False
            before = list(found.live)[-KEPT]
            api.post(f"/v0/topics/{topic}/delete", {"before_seq": before})
            self._rows[topic] = found.texts[-KEPT:]
            self._sure[topic] = True

"""A topic that is made, filled, routed, dropped and made again: gone or whole, never half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from topics.torture.book import Hand, Labels, TopicView, look
from topics.torture.calls import Client, Refused

TOPIC, COPY, ROUTER = "phoenix", "ashes", "phoenix-to-ashes"


@dataclass
class Instance:
    """One life of the topic, from its creation to its drop."""

    durability: str
    texts: list[str] = field(default_factory=list)
    routed: bool = False


class Dropper:
    """Makes and drops one topic, with all that hangs on it."""

    def __init__(self) -> None:
        self.name = TOPIC
        self.acked = 0
        self._labels = Labels(self.name)
        self._now: Instance | None = None
        self._pending: Callable[[], Instance | None] | None = None
        self._epoch = 0  # of the newest instance that was seen
        self._dropped_epoch = 0

    def hands(self) -> list[Hand]:
        return [self._act]

    def _act(self, api: Client, rng: Random) -> None:
        now, dice = self._now, rng.random()
        if now is None:
            durability = rng.choice(("ephemeral", "memory", "disk", "fsync"))
            fresh = Instance(durability)
            self._expect(lambda: fresh)
            api.put(f"/v0/topics/{TOPIC}", {"durability": durability})
        elif dice < 0.15:
            self._expect(lambda: None)
            api.delete(f"/v0/topics/{TOPIC}")
        elif dice < 0.3 and not now.routed:
            self._expect(lambda: Instance(now.durability, now.texts, routed=True))
            api.put(f"/v0/routers/{ROUTER}", {"source": TOPIC, "dest": COPY})
        else:
            texts = [self._labels.next(rng) for _ in range(rng.choice((1, 4)))]
            self._expect(lambda: Instance(now.durability, now.texts + texts, now.routed))
            api.post(f"/v0/topics/{TOPIC}", {"records": [{"data": text} for text in texts]})
        self._settle()
        self.acked += 1

    def _expect(self, after: Callable[[], Instance | None]) -> None:
        self._pending = after

    def _settle(self) -> None:
        assert self._pending is not None
        self._now, self._pending = self._pending(), None
        if self._now is None:
            self._dropped_epoch = self._epoch

    def judge(self, api: Client, *, restarted: bool) -> Iterator[str]:
        found = self._look(api)
        routed = any(r["router"] == ROUTER for r in api.get("/v0/routers")["routers"])
        if found is not None:
            yield from found.problems
        wrong = self._difference(self._now, found, routed, restarted=restarted)
        if wrong and self._pending is not None:
            after = self._pending()
            if self._difference(after, found, routed, restarted=restarted) is None:
                wrong = None
                self._settle()
        if wrong:
            yield f"{TOPIC}: {wrong}"
        self._pending = None
        if found is not None and self._now is not None:
            if found.epoch <= self._dropped_epoch:
                yield f"{TOPIC}: epoch {found.epoch} is not above {self._dropped_epoch}"
            self._epoch = found.epoch
            self._now.texts = found.texts

    def _look(self, api: Client) -> TopicView | None:
        try:
            return look(api, TOPIC)
        except Refused as refused:
            if refused.code != "topic_not_found":
                raise
            return None

    def _difference(
        self, wanted: Instance | None, found: TopicView | None, routed: bool, *, restarted: bool
    ) -> str | None:
        if wanted is None or found is None:
            if routed:
                return "it is gone and its router is not"
            is_gone = wanted is None and found is None
            return None if is_gone else f"wanted {wanted}, found {found}"
        if found.config["durability"] != wanted.durability:
            return f"it is {found.config['durability']} and was {wanted.durability}"
        if routed != wanted.routed:
            return f"routed is {routed} and was {wanted.routed}"
        texts = [] if restarted and wanted.durability == "ephemeral" else wanted.texts
        return None if found.texts == texts else f"holds {found.texts}, written were {texts}"

    def prepare(self, api: Client, rng: Random) -> None:
        """Nothing has to be there before it begins."""

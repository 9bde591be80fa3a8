"""Looking at the engine's topic from inside, without disturbing it, and comparing with the model.

Every public call applies retention first, which would hide when the engine applies it by itself.
So the comparison after each step reads the engine's state directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.property.model.oracle import GONE_BY_FLOOR, Cfg, KeyEntry, Model

from topics.core.facts import SeqSkipped
from topics.core.topic import Topic

_HOLES = {
    SeqSkipped.UNASSIGNED: "skip",
    SeqSkipped.POWER_LOSS: "crash",
    SeqSkipped.REPAIR: "crash",
    SeqSkipped.SOURCE_TRIM: "trim",
}


@dataclass
class Seen:
    """A topic as the engine has it."""

    cfg: Cfg
    head: int
    ts: int
    earliest: int
    cap_hi: int
    ttl_hi: int
    count: int
    nbytes: int
    fate: dict[int, str]
    ledger: Counter[str]
    keys: dict[str, KeyEntry]
    cursors: dict[str, tuple[int, int]]
    delete_version: int
    tags: dict[str, list[int]] | None  # None: not loaded
    latest: int  # the highest time that any clock has shown


def look(topic: Topic, latest: int = 0) -> Seen:
    config, ledger = topic.config, topic.ledger
    return Seen(
        cfg=Cfg(**{name: getattr(config, name) for name in Cfg.__dataclass_fields__}),
        head=topic.head,
        ts=topic.last_ts,
        earliest=topic.earliest,
        cap_hi=topic.cap_hi,
        ttl_hi=topic.ttl_hi,
        count=topic.count,
        nbytes=topic.bytes,
        fate={seq: _fate(topic, seq) for seq in range(1, topic.head + 1)},
        ledger=Counter(
            {
                "live": topic.count,
                "del": ledger.deleted,
                "cap": ledger.lost_cap,
                "ttl": ledger.lost_ttl,
                "crash": ledger.lost_crash,
                "trim": ledger.source_trim,
                "skip": ledger.skipped,
            }
        ),
        keys={k: KeyEntry(e.first_seq, e.count, e.head, e.ts) for k, e in topic.keys.items()},
        cursors=dict(topic.cursors),
        delete_version=topic.delete_version,
        tags=_tags(topic),
        latest=latest,
    )


def let_keys_expire(model: Model, seen: Seen) -> None:
    """Keys outside their window leave when upkeep comes to them, whenever that is."""
    for key, entry in list(model.keys.items()):
        is_over = seen.latest - entry.ts > model.cfg.idempotency_window_ms
        if is_over and key not in seen.keys:
            del model.keys[key]


def _fate(topic: Topic, seq: int) -> str:
    if seq in topic.deleted:
        return "del"
    run = topic.runs.run_at(seq)
    if run is not None:
        return _HOLES[run[2]]
    if seq < topic.evict_floor:
        return "lost"
    return "live" if topic.is_live(seq) else "dead"


def _tags(topic: Topic) -> dict[str, list[int]] | None:
    if not topic.tags.loaded:
        return None
    found = {}
    for tag in topic.tags._postings:
        seqs = topic.tags.seqs_of(tag, lo=1, below=topic.head + 1, most=topic.head)
        live = [seq for seq in seqs if topic.is_live(seq)]
        if live:
            found[tag] = live
    return found


def shown_fate(model: Model, seq: int) -> str:
    """A seq's fate as far as a topic still knows it: below the floor only deletes are kept."""
    fate = model.fate[seq]
    if fate == "live" or (fate == "del" and seq >= model.exact_from):
        return fate
    if fate in GONE_BY_FLOOR or seq < model.floor:
        return "lost"
    return fate


def differences(seen: Seen, model: Model) -> Iterator[str]:
    """What the engine and the model do not agree on."""
    pairs: list[tuple[str, object, object]] = [
        ("config", seen.cfg, model.cfg),
        ("head", seen.head, model.head),
        ("newest time", seen.ts, model.ts),
        ("cap_hi", seen.cap_hi, model.cap_hi),
        ("ttl_hi", seen.ttl_hi, model.ttl_hi),
        ("earliest", seen.earliest, model.earliest),
        ("count", seen.count, len(model.live)),
        ("bytes", seen.nbytes, model.nbytes),
        ("ledger", +seen.ledger, model.ledger()),
        ("keys", list(seen.keys.items()), list(model.keys.items())),
        ("cursors", seen.cursors, model.cursors),
        ("delete_version", seen.delete_version, model.delete_version),
        ("fates", seen.fate, _expected_fates(seen, model)),
    ]
    if seen.tags is not None:
        pairs.append(("tag index", seen.tags, _tags_of(model)))
    for what, engine, expected in pairs:
        if engine != expected:
            yield f"{what}: engine has {_short(engine, expected)}"


def _expected_fates(seen: Seen, model: Model) -> dict[int, str]:
    """Every seq's fate as it should show; of blurred seqs below the floor any death will do."""
    fates = {seq: shown_fate(model, seq) for seq in range(1, model.head + 1)}
    for seq in model.blurred:
        if seq < model.floor and seen.fate.get(seq) in ("del", "lost"):
            fates[seq] = seen.fate[seq]
    return fates


def _short(engine: object, expected: object) -> str:
    if isinstance(engine, dict) and isinstance(expected, dict):
        keys = [k for k in {**engine, **expected} if engine.get(k, "-") != expected.get(k, "-")]
        engine = {key: engine.get(key, "-") for key in keys}
        expected = {key: expected.get(key, "-") for key in keys}
    return f"{engine}, the model {expected}"


def _tags_of(model: Model) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for seq in model.live:
        tag = model.rec[seq].draft.tag
        if tag is not None:
            found.setdefault(tag, []).append(seq)
    return found

"""Stored bytes under attack: every kind of file flipped, cut, swapped, doubled, emptied, joined.

The store has everything a directory can have: log files, CURRENT, FORMAT, snapshots, TRIMMED,
segments with index and tags in both tiers, stages that wait and stages that were committed. After
each mutation an open is refused, with a reason and nothing changed, or it shows what was there,
less what it announces. It never fails in another way and never shows what nobody wrote.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any

import pytest
from tests.crash.fault_scenes import FULL
from tests.crash.stores import DATA_DIR, SPARE, Contents, contents, fill, opened, viewed
from tests.crash.test_bitflips import judge

from topics.embedded import Log
from topics.errors import NotFound, RefusedToOpen
from topics.testing import SimDisk

COLD_DIR = "/cold"
SETTINGS: dict[str, Any] = {"cold_dir": COLD_DIR, "hot_retain_segments": 1, "wal_shards": 2}
KINDS = (
    ".log",
    "CURRENT",
    "FORMAT",
    ".bin",
    "TRIMMED",
    ".data",
    ".idx",
    ".tag",
    ".stage",
    ".topics-cold",
    ".topics.lock",
)
"""How the name of each kind of file ends."""
FLIPS = 200
CUTS = 12
SAMPLE = 10
"""Mutations of a kind that are tried by default; `TOPICS_SWEEP=full` tries all of them.

Whole sweeps of flips and cuts over log, snapshots and segments are in `test_bitflips.py`."""

Dump = dict[str, Contents]
Mutation = tuple[str, Callable[[SimDisk], None]]


def staged(log: Log, epoch: int) -> None:
    for part in range(2):
        rows = [{"topic": t, "data": [epoch, part, t]} for t in ("fsync", "disk") for _ in range(2)]
        log.stage("sink", epoch, part, rows)


@cache
def rich_store() -> SimDisk:
    """A store with every kind of file, whose program died."""
    disk = SimDisk()
    with opened(disk.mount(), **SETTINGS) as log:
        fill(log)
    log = opened(disk.mount(), **SETTINGS)
    for number in range(5):
        log.append("fsync", [{"data": [number, n], "tag": f"t{n % 3}"} for n in range(6)])
        log.checkpoint()
    log.maintain()
    staged(log, 1)
    log.commit("sink", 1, [(0, 0), (1, 0)])
    log.checkpoint()
    staged(log, 2)
    log.append("fsync", {"data": "last"})
    log.sync()
    disk.kill()
    for path in disk.paths():
        if path.endswith(".log"):
            disk.put(path, disk.peek(path).rstrip(b"\0") + bytes(SPARE))
    disk.settle()
    return disk


@cache
def expected() -> Dump:
    return contents(viewed(rich_store(), **SETTINGS))


def of_kind(disk: SimDisk, kind: str) -> list[str]:
    return [path for path in disk.paths() if path.endswith(kind)]


def logs(disk: SimDisk) -> list[bytes]:
    return [disk.peek(path) for path in of_kind(disk, ".log")]


def test_the_store_has_every_kind_of_file_and_no_other() -> None:
    disk = rich_store()
    for kind in KINDS:
        assert of_kind(disk, kind), kind
    known = {path for kind in KINDS for path in of_kind(disk, kind)}
    assert known == set(disk.paths())
    tiers = {path.startswith(COLD_DIR) for path in of_kind(disk, ".data")}
    assert tiers == {True, False}


# What is done to it


def flips(disk: SimDisk, kind: str, rng: random.Random) -> Iterator[Mutation]:
    for _ in range(FLIPS):
        path = rng.choice(of_kind(disk, kind))
        size = len(disk.peek(path).rstrip(b"\0"))
        if size:
            at, bit = rng.randrange(size), 1 << rng.randrange(8)
            yield f"{path} byte {at} bit {bit:#x}", partial(_flip, path, at, bit)


def _flip(path: str, at: int, bit: int, disk: SimDisk) -> None:
    disk.flip(path, at, bit)


def cuts(disk: SimDisk, kind: str, rng: random.Random) -> Iterator[Mutation]:
    for path in of_kind(disk, kind):
        data = disk.peek(path)
        size = len(data.rstrip(b"\0"))
        for length in {0, *(rng.randrange(size) for _ in range(CUTS) if size)}:
            yield f"{path} cut to {length}", partial(_put, path, data[:length])


def noise(disk: SimDisk, kind: str, rng: random.Random) -> Iterator[Mutation]:
    """A stretch of other bytes, zeros among them; a file twice; a file with something behind."""
    for path in of_kind(disk, kind):
        data = disk.peek(path)
        at = rng.randrange(len(data) + 1)
        for name, other in (
            ("noise", data[:at] + rng.randbytes(64) + data[at + 64 :]),
            ("zeros", data[:at] + bytes(64) + data[at + 64 :]),
            ("all zeros", bytes(len(data))),
            ("twice", data + data),
            ("more behind", data + rng.randbytes(100)),
            ("repeated inside", data[:at] + data[at // 2 : at] + data[at:]),
        ):
            yield f"{path}: {name} at {at}", partial(_put, path, other)


def swaps(disk: SimDisk, kind: str, rng: random.Random) -> Iterator[Mutation]:
    """Two files of a kind exchanged, or one in the place of both."""
    paths = of_kind(disk, kind)
    for one in paths:
        other = rng.choice(paths)
        if one != other:
            yield f"{one} <-> {other}", partial(_swap, one, other)
            yield f"{one} over {other}", partial(_put, other, disk.peek(one))


def _swap(one: str, other: str, disk: SimDisk) -> None:
    first, second = disk.peek(one), disk.peek(other)
    disk.put(one, second)
    disk.put(other, first)


def _put(path: str, data: bytes, disk: SimDisk) -> None:
    disk.put(path, data)


def strangers(disk: SimDisk, kind: str, rng: random.Random) -> Iterator[Mutation]:
    """Files that nobody made, beside those of a kind: with any name, and with one of ours."""
    for folder in {path.rpartition("/")[0] for path in of_kind(disk, kind)}:
        sample = next(p for p in of_kind(disk, kind) if p.startswith(f"{folder}/"))
        data = disk.peek(sample)
        name = sample.rpartition("/")[2]
        digits = "".join(c for c in name if c.isdigit())
        later = name.replace(digits, f"{int(digits) + 7:0{len(digits)}d}") if digits else ""
        for stranger in ("notes.txt", ".DS_Store", f"{name}.bak", f"copy of {name}", later):
            if stranger and not disk.exists(f"{folder}/{stranger}"):
                for content in (b"", rng.randbytes(200), data):
                    yield f"{folder}/{stranger}", partial(_put, f"{folder}/{stranger}", content)


ATTACKS = {attack.__name__: attack for attack in (flips, cuts, noise, swaps, strangers)}


# What may come of it


def outcome(disk: SimDisk, *, may_end_early: bool) -> str:
    """Opened twice for writing: refused and unchanged, or the same as before but for gaps."""
    untouched = disk.contents()
    try:
        log = opened(disk, **SETTINGS)
    except RefusedToOpen as refused:
        changed = {p for p, data in disk.contents().items() if untouched.get(p) != data}
        assert changed <= {f"{DATA_DIR}/.topics.lock"}, "a refusal changes nothing"
        return f"refused: {refused.reason}"
    with log:
        shown = contents(log)
        seen = compare(shown, may_end_early=may_end_early)
        for topic in shown:
            log.append(topic, {"data": "goes on"})
        with suppress(NotFound):  # the damaged one is not used
            log.commit("sink", 2, [(0, 0), (1, 0)])
    with opened(disk, **SETTINGS) as log:
        again = contents(log)
    for topic, was in shown.items():
        if was.state["config"]["durability"] != "ephemeral":
            gone = was.records.keys() - again[topic].records.keys()
            assert all(again[topic].announces(seq) for seq in gone), "the second open agrees"
    return seen


def compare(found: Dump, *, may_end_early: bool) -> str:
    before = expected()
    if not may_end_early:
        return judge(found, before, unclean=True)
    # Behind the last proof of durability, damage looks like a write that was never finished.
    for topic, shown in found.items():
        for seq, record in shown.records.items():
            was = before[topic].records.get(seq)
            assert was is None or was == record, f"{topic} seq {seq} is not what was written"
    return "same"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mutated_directory_is_refused_or_shows_nothing_that_was_not_written(
    attack: str, kind: str
) -> None:
    seed = f"{attack} {kind}"
    disk, seen = rich_store(), Counter[str]()
    mutations = list(ATTACKS[attack](disk, kind, random.Random(seed)))
    if not FULL:
        mutations = random.Random(seed).sample(mutations, min(SAMPLE, len(mutations)))
    for label, mutate in mutations:
        twin = disk.clone()
        mutate(twin)
        try:
            seen[outcome(twin, may_end_early=logs(twin) != logs(disk))] += 1
        except BaseException as error:
            error.add_note(f"mutation: {label}")
            raise
    assert seen or len(of_kind(disk, kind)) == 1 or not disk.peek(of_kind(disk, kind)[0])

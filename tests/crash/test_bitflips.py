"""Rot: one flipped bit in any byte of a closed directory, and files cut short.

What may come of it: the open is refused, everything reads as before, or what cannot be read is
announced as a gap of exactly its seqs. What may not: other data, less data without a word, a
deleted record that is back, or an error nobody expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest
from tests.crash.stores import DATA_DIR, Contents, closed_store, contents, opened, viewed

from topics.embedded import Log
from topics.errors import RefusedToOpen
from topics.storage.segments.codec import ENTRY_SIZE
from topics.testing import ManualClock, SimDisk

ZEROS_TRIED = 3
"""How many bytes of the zeros behind a log's end are flipped: they are all alike."""
SHARES = 4
"""The sweep is cut into this many tests, so that workers can share it."""
OPENS = 200
"""How many places are tried with an open for writing, which costs more than a view."""
CUTS = 20
"""At how many lengths each file is cut."""

Dump = dict[str, Contents]


def log_only() -> SimDisk:
    """Without snapshots everything comes from the log, so every frame of it is read."""
    disk = closed_store()
    for path in disk.paths():
        if "/meta/" in path or "/topics/" in path:
            disk.unlink(path)
    disk.settle()
    return disk


STORES: dict[str, tuple[Callable[[], SimDisk], int]] = {
    "one shard": (closed_store, 1),
    "two shards": (lambda: closed_store(wal_shards=2), 16),
    "log only": (log_only, 1),
}
"""How to make a store, and every how many bytes it is flipped: shards are alike."""
ELSEWHERE = 8
"""Beside a snapshot, every how many bytes of a log are flipped: without one, each of them is."""


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def disk(store: str) -> SimDisk:
    return STORES[store][0]()


@pytest.fixture(scope="module")
def before(disk: SimDisk) -> Dump:
    return contents(viewed(disk))


def places(disk: SimDisk) -> Iterator[tuple[str, int]]:
    """Every byte that says something."""
    has_snapshot = any("/meta/" in path for path in disk.paths())
    for path in disk.paths():
        end = min(said(disk, path) + ZEROS_TRIED, len(disk.peek(path)))
        step = ELSEWHERE if has_snapshot and path.endswith(".log") else 1
        yield from ((path, at) for at in range(0, end, step))


def said(disk: SimDisk, path: str) -> int:
    """How many bytes of a file say something: behind a log's end are only zeros."""
    data = disk.peek(path)
    return len(data.rstrip(b"\0")) if path.endswith(".log") else len(data)


def bit_for(offset: int) -> int:
    """A different bit from byte to byte, the same in every run."""
    return 1 << (offset * 7 + offset // 8) % 8


def told(dump: Dump) -> Dump:
    """A dump without what only a snapshot knows: how the seqs of an ephemeral life were lost."""
    causes = ("lost_cap", "lost_ttl", "lost_crash")
    plain = {}
    for topic, shown in dump.items():
        audit = dict(shown.audit)
        if shown.state["config"]["durability"] == "ephemeral":
            audit["lost"] = sum(audit.pop(cause) for cause in causes)
        plain[topic] = replace(shown, audit=audit)
    return plain


def judge(found: Dump, before: Dump, *, unclean: bool = False) -> str:
    """`same` or `announced`; anything else is an assertion that tells what differs.

    `unclean` allows what a kill may do as well: seqs above the head count as handed out.
    """
    if told(found) == told(before):
        return "same"
    assert found.keys() == before.keys()
    for topic, was in before.items():
        now = found[topic]
        head = was.state["head_seq"]
        assert now.state["head_seq"] == head or (unclean and now.state["head_seq"] > head), topic
        for seq, record in now.records.items():
            assert was.records.get(seq) == record, f"{topic} seq {seq} is not what was written"
        for seq in was.records.keys() - now.records.keys():
            assert now.announces(seq), f"{topic} seq {seq} vanished without a word"
        for gap in now.tombstones:
            for seq in range(gap.gap_from, min(gap.gap_to, head) + 1):
                assert was.announces(seq) or seq in was.records, f"{topic} seq {seq} was not lost"
    if all(found[topic].tombstones == before[topic].tombstones for topic in before):
        assert unclean, "something differs that no tombstone explains"
        return "same"
    return "announced"


def outcome_of_view(disk: SimDisk, before: Dump, *, unclean: bool = False) -> str:
    try:
        log = viewed(disk)
    except RefusedToOpen:
        return "refused"
    try:
        return judge(contents(log), before, unclean=unclean)
    finally:
        log.close()


def outcome_of_open(disk: SimDisk, before: Dump) -> str:
    """Opening for writing repairs files: the second open must agree with the first."""
    untouched = disk.contents()
    try:
        log = opened(disk)
    except RefusedToOpen:
        changed = {p for p, data in disk.contents().items() if untouched.get(p) != data}
        assert changed <= {f"{DATA_DIR}/.topics.lock"}, "a refusal changes nothing"
        return "refused"
    with log:
        outcome = judge(contents(log), before)
    with opened(disk) as log:
        judge(contents(log), before)
        deletes_by_tag(log, before)
    return outcome


def deletes_by_tag(log: Log, before: Dump) -> None:
    """The tag index still finds every record, though it may have been rebuilt."""
    for topic in before:
        log.delete(topic, match="t0")
    for topic, now in contents(log).items():
        kept = {seq for seq, record in before[topic].records.items() if record.tag != "t0"}
        assert {seq for seq in kept if not now.announces(seq)} == now.records.keys(), topic


@pytest.mark.parametrize("share", range(SHARES))
def test_a_flipped_bit_anywhere_is_refused_harmless_or_announced(
    store: str, disk: SimDisk, before: Dump, share: int
) -> None:
    seen: Counter[str] = Counter()
    every = STORES[store][1]
    for path, offset in islice(places(disk), share * every, None, SHARES * every):
        mask = bit_for(offset)
        disk.flip(path, offset, mask)
        try:
            seen[outcome_of_view(disk, before)] += 1
        except BaseException as error:
            error.add_note(f"byte {offset} of {path}, bit {mask:#x}")
            raise
        finally:
            disk.flip(path, offset, mask)
    assert seen["refused"], "damage is noticed"
    assert seen["same"], "spare bytes are harmless"


def test_opening_for_writing_after_a_flip_neither_loses_nor_invents(
    disk: SimDisk, before: Dump
) -> None:
    every = list(places(disk))
    for path, offset in every[:: len(every) // OPENS]:
        twin = disk.clone()
        twin.flip(path, offset, bit_for(offset))
        try:
            outcome_of_open(twin, before)
        except BaseException as error:
            error.add_note(f"byte {offset} of {path}, bit {bit_for(offset):#x}")
            raise


def test_a_flip_in_a_growing_index_hides_no_record_from_a_delete() -> None:
    """No recorded hash covers the index of a segment that still grows."""
    disk = closed_store()
    before = contents(viewed(disk))
    paths = set(disk.paths())
    growing = [p for p in paths if p.endswith(".idx") and p.replace(".idx", ".tag") not in paths]
    assert growing
    for path in sorted(growing):
        for offset in range(len(disk.peek(path))):
            twin = disk.clone()
            twin.flip(path, offset, bit_for(offset))
            with opened(twin) as log:
                deletes_by_tag(log, before)


def test_a_flip_in_a_growing_index_neither_expires_a_record_nor_gives_it_more_time() -> None:
    """Every bit of an entry, and one of every byte of the others: offset, length, time, flags,
    delete byte and length of names. What time and tag a record has is not the index's to say."""
    disk, clock = SimDisk(), ManualClock()
    with opened(disk, clock=clock) as log:
        log.create("a", ttl_ms=60_000)
        for data in range(5):
            log.append("a", {"data": data, "tag": "t" if data % 2 else None})
            clock.advance(10_000)
    disk.settle()
    (path,) = [path for path in disk.paths() if path.endswith(".idx")]
    left = [seq for seq in range(1, 6) if (seq - 1) * 10_000 + 60_000 >= 75_000]
    clock.advance(25_000)
    now_ms, size = clock.now_ms(), len(disk.peek(path))
    whole = [(2 * ENTRY_SIZE + at, 1 << bit) for at in range(ENTRY_SIZE) for bit in range(8)]
    for offset, mask in whole + [(at, bit_for(at)) for at in range(size)]:
        twin = disk.clone()
        twin.flip(path, offset, mask)
        for _ in range(2):  # what was repaired is right, too
            with opened(twin, clock=ManualClock(now_ms)) as log:
                shown = contents(log)["a"]
                what = (
                    f"bit {mask:#x} of byte {offset % ENTRY_SIZE} of entry {offset // ENTRY_SIZE}"
                )
                assert sorted(shown.records) == left, what
                (loss,) = shown.tombstones
                assert (loss.gap_from, loss.gap_to, loss.reason) == (1, left[0] - 1, "ttl"), what


def test_a_file_cut_short_is_refused_harmless_or_announced(
    store: str, disk: SimDisk, before: Dump
) -> None:
    """The newest log file ends where its frames do: a cut behind the snapshot's position takes
    the word of the clean stop away, and one without a snapshot looks like a crash."""
    for path in disk.paths():
        if store == "log only" and path.endswith(".log"):
            continue
        data, end = disk.peek(path), said(disk, path)
        for length in sorted({*range(0, end, max(1, end // CUTS)), max(end - 1, 0)}):
            twin = disk.clone()
            twin.put(path, data[:length])
            try:
                outcome_of_view(twin, before, unclean=path.endswith(".log"))
            except BaseException as error:
                error.add_note(f"{path} cut to {length} of {len(data)} bytes")
                raise


def test_a_missing_file_is_refused_or_harmless(disk: SimDisk, before: Dump) -> None:
    for path in disk.paths():
        twin = disk.clone()
        twin.unlink(path)
        try:
            assert outcome_of_view(twin, before) != "announced"
        except BaseException as error:
            error.add_note(f"{path} removed")
            raise

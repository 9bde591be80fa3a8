"""Several writes as one submission: in the log, and to whoever asks, each is a write of its own."""

from __future__ import annotations

import errno
from typing import NamedTuple

import pytest
from tests.unit.queue.builders import Shop

from topics.batch import RecordBatch
from topics.engine.effects import Op, run
from topics.engine.reads.reading import Query
from topics.engine.writes.append import Timing
from topics.engine.writes.reserving import RESERVE_BLOCK
from topics.errors import LogFull
from topics.storage.frames.buffer import walk
from topics.storage.frames.header import FLAG_CONT, HEADER, OVERHEAD
from topics.storage.frames.payloads import FrameType
from topics.values import Ack

TOPIC = "t"
TTL_MS = 1000
KIND, FLAGS = 4, 5
"""Where in a frame its type and its flags are."""


class Write(NamedTuple):
    key: str | None
    batch: RecordBatch


MIXED = [
    Write("a", RecordBatch([b'"a1"'])),
    Write(None, RecordBatch([b'"b1"', b'"b2"'])),
    Write("c", RecordBatch([b'"c1"', b'"c2"', b'"c3"'])),
    Write("d", RecordBatch([b'"d1"'])),
    Write(None, RecordBatch([b'"e1"'])),
    Write("f" * 200, RecordBatch([b'"f1"', b'"f2"'])),
]
NAMED = [
    Write("a", RecordBatch([b'"a1"', b'"a2"'], tags=["red", None])),
    Write("b", RecordBatch([b'"b1"'], metas=[b'{"k":1}'])),
    Write(None, RecordBatch([b'"c1"'])),
    Write("d", RecordBatch([b'"d1"', b'"d2"'], nodes=[None, "n"])),
]
PLAIN_FIRST = [Write(None, RecordBatch([b'"a1"'])), Write("b", RecordBatch([b'"b1"']))]
CLASSES = ["ephemeral", "memory", "disk", "fsync"]


def shop(**config: object) -> Shop:
    """An engine whose topic has one record, and seqs for more."""
    made = Shop(on_disk=True)
    made.put(TOPIC, **config)
    made.append(name=TOPIC)
    return made


def together(made: Shop, writes: list[Write]) -> Op[list[Ack] | None]:
    batches, keys = [write.batch for write in writes], [write.key for write in writes]
    return made.engine.append_together(TOPIC, batches, Timing(), keys)


def appended(made: Shop, writes: list[Write]) -> list[Ack]:
    acks = run(together(made, writes))
    assert acks is not None
    return acks


def one_by_one(made: Shop, writes: list[Write]) -> list[Ack]:
    return [run(made.engine.append(TOPIC, batch, key=key)) for key, batch in writes]


def logged(made: Shop) -> bytes:
    (path,) = [path for path in made.disk.paths() if path.endswith(".log")]
    return made.disk.peek(path).rstrip(b"\0")


def without_beacons(log: bytes) -> list[bytes]:
    """The frames, less those that only say when the disk was synced."""
    found = walk(log, 0, len(log))
    assert found.stop == len(log)
    headers = [(at, HEADER.unpack_from(log, at)) for at in found.offsets]
    return [
        log[at : at + header[0] + 4]
        for at, header in headers
        if header[1] != FrameType.CHECKPOINT_MARK
    ]


def stored(made: Shop) -> list[tuple[int, object, str | None, str | None, object]]:
    """Everything behind the record that was there before."""
    page = run(made.engine.read(TOPIC, Query(after=1)))
    return [(r.seq, r.data, r.tag, r.node, r.meta) for r in page.records]


def check_keys(made: Shop, writes: list[Write], acks: list[Ack]) -> None:
    """Each key answers with the seqs of its own write."""
    for (key, batch), ack in zip(writes, acks, strict=True):
        if key is not None:
            again = run(made.engine.append(TOPIC, batch, key=key))
            assert again.deduped
            assert (again.first_seq, again.last_seq) == (ack.first_seq, ack.last_seq)
            assert (again.head_seq, again.count) == (ack.head_seq, ack.count)


@pytest.mark.parametrize("writes", [MIXED, NAMED, PLAIN_FIRST])
@pytest.mark.parametrize("durability", ["memory", "disk"])
@pytest.mark.parametrize("ttl_ms", [0, TTL_MS])
def test_the_log_has_the_bytes_that_writes_one_by_one_would_leave(
    writes: list[Write], durability: str, ttl_ms: int
) -> None:
    tails, answers, found = [], [], []
    for write in (appended, one_by_one):
        made = shop(durability=durability, ttl_ms=ttl_ms)
        made.clock.advance(TTL_MS + 1)  # with a TTL, its loss is logged before the first write
        before = len(logged(made))
        answers.append(write(made, writes))
        tails.append(without_beacons(logged(made)[before:]))
        found.append(stored(made))
    assert tails[0] == tails[1]
    assert answers[0] == answers[1]
    assert found[0] == found[1]
    assert len(found[0]) == sum(len(write.batch) for write in writes)


@pytest.mark.parametrize("writes", [MIXED, NAMED, PLAIN_FIRST])
@pytest.mark.parametrize("durability", CLASSES)
def test_every_record_is_read_from_its_own_place_and_every_key_is_known(
    writes: list[Write], durability: str
) -> None:
    made, alone = shop(durability=durability), shop(durability=durability)
    acks = appended(made, writes)
    assert acks == one_by_one(alone, writes)
    assert stored(made) == stored(alone)
    check_keys(made, writes, acks)
    assert stored(made) == stored(alone), "a repeat appends nothing"


@pytest.mark.parametrize("writes", [MIXED, NAMED, PLAIN_FIRST])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_records_places_and_keys_come_back_with_the_log(
    writes: list[Write], durability: str
) -> None:
    made = shop(durability=durability)
    acks = appended(made, writes)
    before = stored(made)
    places = made.engine.kernel.topic(TOPIC).tail.locations[1:]
    made.kill()
    assert stored(made) == before
    again = made.engine.kernel.topic(TOPIC).tail.locations[1:]
    offsets = [place & 0xFFFFFFFF for place in places]
    assert [place & 0xFFFFFFFF for place in again] == offsets
    check_keys(made, writes, acks)


def test_a_loss_leads_the_first_write_and_each_key_its_own() -> None:
    made = shop(durability="disk", ttl_ms=TTL_MS)
    made.clock.advance(TTL_MS + 1)
    before = len(logged(made))
    appended(made, NAMED)
    frames = without_beacons(logged(made)[before:])
    names = [FrameType(frame[KIND]).name[0] for frame in frames]
    assert "".join(names) == "EKAAKAAKAA"
    ends = [at for at, frame in enumerate(frames) if not frame[FLAGS] & FLAG_CONT]
    assert ends == [3, 5, 6, 9], "each write is a run of its own"


def test_every_frame_is_counted() -> None:
    made = shop(durability="disk")
    end, (ordinal,) = len(logged(made)), made.engine.kernel.applied.values()
    appended(made, MIXED)
    frames = without_beacons(logged(made)[end:])
    assert len(frames) == sum(len(batch) + (key is not None) for key, batch in MIXED)
    assert list(made.engine.kernel.applied.values()) == [ordinal + len(frames)]


def test_records_reach_their_segments() -> None:
    made = shop(durability="disk")
    acks = appended(made, MIXED)
    before = stored(made)
    made.engine.checkpoint()
    assert stored(made) == before
    made.kill()
    assert stored(made) == before
    check_keys(made, MIXED, acks)


def test_memory_holds_the_records_of_an_ephemeral_topic_and_no_keys() -> None:
    made = shop(durability="ephemeral", ttl_ms=TTL_MS)
    held = made.engine.kernel.arenas.total
    made.clock.advance(TTL_MS + 1)
    appended(made, MIXED)
    datas = [data for write in MIXED for data in write.batch.datas]
    frames = sum(len(data) + OVERHEAD + 4 for data in datas)
    assert made.engine.kernel.arenas.total == held + frames


def test_one_write_to_the_file_is_enough() -> None:
    made = shop(durability="disk")
    calls = len(made.fs.trace)
    appended(made, MIXED)
    assert [call.op for call in made.fs.trace[calls:]] == ["pwrite"]


def test_with_a_key_that_was_seen_before_each_goes_by_itself() -> None:
    made = shop(durability="disk")
    run(made.engine.append(TOPIC, RecordBatch([b"0"]), key="c"))
    before = logged(made)
    assert run(together(made, MIXED)) is None
    assert logged(made) == before
    assert made.engine.kernel.topic(TOPIC).handed_out == 2


def test_a_key_outside_its_window_is_a_new_one() -> None:
    made = shop(durability="disk", idempotency_window_ms=1000)
    run(made.engine.append(TOPIC, RecordBatch([b"0"]), key="c"))
    made.clock.advance(1001)
    acks = appended(made, MIXED)
    assert acks[2].first_seq == 6
    check_keys(made, MIXED, acks)


def test_with_a_key_that_comes_twice_each_goes_by_itself() -> None:
    made = shop(durability="disk")
    before = logged(made)
    assert run(together(made, [*MIXED, Write("a", RecordBatch([b"1"]))])) is None
    assert logged(made) == before


def test_with_a_key_that_is_on_its_way_each_goes_by_itself() -> None:
    made = shop(durability="disk")
    made.log.is_holding = True
    acks = made.loop.begin(together(made, MIXED))
    for key in ("a", "c", "d", "f" * 200):
        assert run(together(made, [*PLAIN_FIRST, Write(key, RecordBatch([b"1"]))])) is None
        assert made.engine.submit(TOPIC, RecordBatch([b"1"]), key) is None
    again = made.loop.begin(made.engine.append(TOPIC, RecordBatch([b"1"]), key="d"))
    assert len(made.log.held) == 1
    made.log.is_holding = False
    made.log.let_go()
    made.loop.settle()
    assert again.result.deduped
    assert acks.answer is not None
    assert again.result.first_seq == acks.answer[3].first_seq


def test_a_write_with_the_same_key_waits_behind_those_that_wait_for_seqs() -> None:
    made = shop(durability="disk")
    topic = made.engine.kernel.topic(TOPIC)
    many = RecordBatch([b"1"] * (topic.reserved - topic.handed_out))
    made.log.is_holding = True
    waiting = made.loop.begin(together(made, [Write("k", many), Write(None, many)]))
    later = made.loop.begin(made.engine.append(TOPIC, RecordBatch([b"0"]), key="k"))
    assert len(made.log.held) == 1, "nothing but the reservation"
    made.log.is_holding = False
    made.log.let_go()
    made.loop.settle()
    acks = waiting.result
    assert acks is not None
    assert (later.result.deduped, later.result.first_seq) == (True, acks[0].first_seq)
    assert topic.head == acks[1].last_seq


def test_when_the_log_refuses_no_key_is_known_and_no_seq_is_burnt() -> None:
    made = shop(durability="disk")
    made.fs.fail("pwrite", errno.ENOSPC)
    with pytest.raises(LogFull):
        run(together(made, MIXED))
    made.fs.clear()
    made.engine.kernel.committer.try_heal()
    acks = one_by_one(made, MIXED)
    assert not any(ack.deduped for ack in acks)
    assert acks[0].first_seq == 2
    check_keys(made, MIXED, acks)


def test_a_lone_write_with_a_key_is_submitted_without_waiting() -> None:
    made = shop(durability="disk")
    first = made.engine.submit(TOPIC, RecordBatch([b"1"]), "k")
    assert first is not None
    assert first.run.first_seq == 2
    assert made.engine.submit(TOPIC, RecordBatch([b"1"]), "k") is None
    assert run(made.engine.append(TOPIC, RecordBatch([b"1"]), key="k")).deduped


def test_seqs_for_all_are_reserved_at_once() -> None:
    made = shop(durability="disk")
    many = RecordBatch([b"1"] * RESERVE_BLOCK)
    acks = appended(made, [Write("a", many), Write("b", many), Write("c", many)])
    assert [ack.first_seq for ack in acks] == [2 + RESERVE_BLOCK * i for i in range(3)]
    topic = made.engine.kernel.topic(TOPIC)
    assert topic.head == topic.handed_out <= topic.reserved

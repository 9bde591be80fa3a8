"""A write whose frames were made beforehand is a write like any other."""

from __future__ import annotations

import pytest
from tests.unit.queue.builders import Shop

from topics.batch import RecordBatch
from topics.engine.effects import run
from topics.engine.reads.reading import Query
from topics.errors import HeadMismatch, LogFull
from topics.storage.frames.prepared import PreparedAppend, prepare_append
from topics.values import Ack

TOPIC = "t"
TTL_MS = 1000
CLASSES = ["ephemeral", "memory", "disk", "fsync"]
BATCH = RecordBatch(
    [b'"a"', b'"b"', b'"c"'], [b"", b'{"k":1}', b""], [None, "red", None], ["n", None, None]
)


def shop(**config: object) -> Shop:
    made = Shop(on_disk=True)
    made.put(TOPIC, **config)
    made.append(name=TOPIC)
    return made


def prepared(batch: RecordBatch) -> PreparedAppend:
    steps = prepare_append(batch)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: PreparedAppend = end.value
            return found


def append(made: Shop, *, key: str | None = None, beforehand: bool = True) -> Ack:
    frames = prepared(BATCH) if beforehand else None
    return run(made.engine.append(TOPIC, BATCH, key=key, prepared=frames))


def log_of(made: Shop) -> bytes:
    (path,) = [path for path in made.disk.paths() if path.endswith(".log")]
    return made.disk.peek(path)


def stored(made: Shop) -> list[object]:
    page = run(made.engine.read(TOPIC, Query()))
    return [(record.seq, record.node, record.tag, record.data) for record in page.records]


@pytest.mark.parametrize("durability", CLASSES)
@pytest.mark.parametrize("key", [None, "k" * 256])
@pytest.mark.parametrize("ttl_ms", [0, TTL_MS])
def test_it_is_the_same_in_memory_in_the_log_and_after_a_restart(
    durability: str, key: str | None, ttl_ms: int
) -> None:
    config = {"durability": durability} | ({"ttl_ms": ttl_ms} if ttl_ms else {})
    whole, made = shop(**config), shop(**config)
    for each in (whole, made):
        each.clock.advance(TTL_MS + 1)  # what was there is due to go, if anything ever is
    assert append(made, key=key) == append(whole, key=key, beforehand=False)
    assert stored(made) == stored(whole)
    assert len(log_of(made)) == len(log_of(whole))
    for each in (whole, made):
        each.kill()
    assert stored(made) == stored(whole)


def test_a_key_that_was_seen_writes_nothing_again() -> None:
    made = shop()
    first = append(made, key="k")
    before = stored(made)
    again = append(made, key="k")
    assert (again.deduped, again.first_seq) == (True, first.first_seq)
    assert stored(made) == before
    made.kill()
    assert append(made, key="k").deduped


def test_a_head_that_moved_meanwhile_refuses_it() -> None:
    made = shop()
    frames = prepared(BATCH)
    made.append(name=TOPIC)
    before = stored(made)
    with pytest.raises(HeadMismatch):
        run(made.engine.append(TOPIC, BATCH, expect_head=1, prepared=frames))
    assert stored(made) == before
    ack = run(made.engine.append(TOPIC, BATCH, expect_head=2, prepared=frames))
    assert (ack.first_seq, ack.last_seq) == (3, 5)


def test_a_write_that_the_log_refuses_leaves_no_trace() -> None:
    made = shop()
    made.fs.fail("pwrite", 28)
    with pytest.raises(LogFull):
        append(made)
    made.clock.advance(2000)
    assert append(made).first_seq == 2

"""A checkpoint of very many topics: few files open at a time, few hand-overs, and pauses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.engine.builders import Store

from topics.engine.effects import PAUSE, Io, Op, Pause, Wait, fulfil
from topics.engine.upkeep import relocation

TOPICS = 300

MORE_TOPICS_THAN_FILES = f"""
import resource, sys, topics
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
with topics.open(sys.argv[1]) as log:
    resource.setrlimit(resource.RLIMIT_NOFILE, ({TOPICS}, most))
    for number in range({TOPICS}):
        log.append(f"t{{number}}", {{"data": number}})
    log.checkpoint()
with topics.open(sys.argv[1]) as log:
    found = [log.read(f"t{{number}}").records[0].data for number in range({TOPICS})]
    assert found == list(range({TOPICS})), found
"""


def test_more_topics_can_be_written_than_files_can_be_open(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", MORE_TOPICS_THAN_FILES, str(tmp_path / "data")], check=True
    )


def waits_of(work: Op[None]) -> list[Wait]:
    waits = [next(work)]
    try:
        while True:
            waits.append(fulfil(work, waits[-1]))
    except StopIteration:
        return waits


def test_topics_that_have_nothing_new_are_handed_over_many_at_a_time() -> None:
    store = Store()
    for number in range(TOPICS):
        store.log.create(f"t{number}")
    upkeep = store.log._engine.upkeep
    assert upkeep is not None
    waits = waits_of(upkeep.checkpoint())
    assert sum(isinstance(wait, Io) for wait in waits) < TOPICS // 10
    walks = 8  # captured, finished, filled, marked, let go, kept, and let go of twice
    assert sum(isinstance(wait, Pause) for wait in waits) >= walks * (TOPICS // 128)


def test_the_look_for_old_segments_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "TOPICS_BETWEEN_PAUSES", 5)
    store = Store()
    store.settings |= {"cold_dir": "/cold"}
    store.restart()
    for number in range(25):
        store.log.create(f"t{number}")
    waits = waits_of(relocation.relocate_old(store.kernel, lambda _id, _seq: True))
    assert waits == [PAUSE] * 5

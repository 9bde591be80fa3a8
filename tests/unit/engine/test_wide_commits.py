"""Commits over very many topics: in steps, and still all of it shown or nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from topics.core.topic import Topic
from topics.engine.effects import Op, Pause, fulfil, run
from topics.engine.engine import Engine
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.engine.stages import commit, landing, staging
from topics.engine.stages.commit import Stranded
from topics.engine.stages.rows import stage_rows_of
from topics.engine.writes import gates
from topics.storage.frames.append import encode_append
from topics.testing import ManualClock, SimDisk
from topics.values import StageCommit

TOPICS = [f"t{number}" for number in range(25)]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    for module, name in (
        (commit, "STEP_TOPICS"),
        (landing, "STEP_TOPICS"),
        (landing, "SHOWN_AT_ONCE"),
        (gates, "STEP_TOPICS"),
    ):
        monkeypatch.setattr(module, name, 5)
    opening = Opening(EngineSettings(cache_bytes=64 << 10), ManualClock())
    made = open_engine(SimDisk(), "/data", opening)
    stage(made, 1)
    return made


def stage(engine: Engine, epoch: int) -> None:
    rows = stage_rows_of([{"topic": topic, "data": epoch} for topic in TOPICS])
    run(engine.stage("etl", epoch, 0, 0, rows))


def shown(engine: Engine) -> int:
    by_name = engine.kernel.catalog.by_name
    return sum(by_name[name].head for name in TOPICS if name in by_name)


def drive(op: Op[StageCommit], at_pause: Callable[[], None]) -> StageCommit:
    try:
        wait = next(op)
        while True:
            if isinstance(wait, Pause):
                at_pause()
            wait = fulfil(op, wait)
    except StopIteration as finished:
        answer: StageCommit = finished.value
        return answer


def test_a_wide_commit_pauses_and_says_while_a_part_of_it_is_shown(engine: Engine) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(shown(engine))
        is_part = 0 < seen[-1] < len(TOPICS)
        assert bool(engine.kernel.publishing) >= is_part
        for publishing in engine.kernel.publishing:
            assert publishing.concerns(["t3"])
            assert publishing.concerns([]), "a list of all topics"
            assert not publishing.concerns(["other"])

    done = drive(engine.commit("etl", 1, [(0, 0)]), look)
    assert len(done.topics) == shown(engine) == len(TOPICS)
    assert not engine.kernel.publishing
    assert not engine.kernel.gates.closed
    assert {5, 10, 15, 20} <= set(seen), "published in steps"
    before, after = seen.count(0), seen.count(len(TOPICS))
    assert before >= 4 * 5, "closing, admitting twice, planning, appending"
    assert after >= 5, "opening"


def test_a_long_commit_into_one_topic_is_encoded_beside_the_loop_and_shown_in_steps(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "CHUNK_RECORDS", 10)
    monkeypatch.setattr(landing, "SHOWN_RECORDS", 20)
    monkeypatch.setattr(landing, "ENCODED_AT_ONCE", 5)
    encoded_in = set()

    def noted(*asked: Any, **more: Any) -> Any:  # noqa: ANN401 - as the original
        encoded_in.add(inspect.stack()[1].function)
        return encode_append(*asked, **more)

    monkeypatch.setattr(landing, "encode_append", noted)
    for part, count in enumerate((3, 3, 90)):  # small parts share a piece
        rows = [{"topic": "long", "data": n, "tag": f"g:{n}"} for n in range(count)]
        run(engine.stage("long", 1, part, 0, stage_rows_of(rows)))
    seen: list[int] = []

    def look() -> None:
        topic = engine.kernel.catalog.by_name.get("long")
        seen.append(0 if topic is None else topic.head)
        assert bool(engine.kernel.publishing) >= (0 < seen[-1] < 96)

    done = drive(engine.commit("long", 1, [(0, 0), (1, 0), (2, 0)]), look)
    assert done.topics["long"].count == 96
    assert {16, 26, 86} <= set(seen), "shown in steps, while requests for the topic wait"
    assert encoded_in == {fulfil.__name__}, "every piece was encoded where waits are served"


def test_a_wide_commit_that_cannot_be_published_lets_nobody_wait(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = engine.kernel.show

    def broken(topic: Topic, apply: Callable[[], object], *, wakes: bool) -> None:
        if shown(engine) == 7:
            raise RuntimeError("no")
        show(topic, apply, wakes=wakes)

    monkeypatch.setattr(engine.kernel, "show", broken)
    waiting: list[str] = []

    def look() -> None:
        if engine.kernel.publishing and not waiting:
            waiting.append("waits")
            engine.kernel.publishing[0].over.when_open(lambda: waiting.append("goes on"))

    with pytest.raises(Stranded):
        drive(engine.commit("etl", 1, [(0, 0)]), look)
    assert waiting == ["waits", "goes on"]
    assert not engine.kernel.publishing


def test_a_wide_commit_is_answered_twice_alike(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "LONG_RESULT_BYTES", 10)
    first = run(engine.commit("etl", 1, [(0, 0)]))
    again = run(engine.commit("etl", 1, [(0, 0)]))
    assert (first.deduped, again.deduped) == (False, True)
    assert first.topics == again.topics
    assert list(first.topics) == TOPICS


def test_a_narrow_commit_is_published_in_one_step(engine: Engine) -> None:
    rows = stage_rows_of([{"topic": topic, "data": 1} for topic in TOPICS[:5]])
    run(engine.stage("small", 1, 0, 0, rows))
    parts: set[int] = set()
    drive(engine.commit("small", 1, [(0, 0)]), lambda: parts.add(shown(engine)))
    assert parts <= {0, 5}


def test_sections_open_also_when_their_opening_is_given_up(engine: Engine) -> None:
    run(engine.commit("etl", 1, [(0, 0)]))
    ids = [engine.kernel.catalog.by_name[name].id for name in TOPICS]
    gate = run(engine.kernel.gates.close(ids))
    opening = engine.kernel.gates.open_in_steps(gate)
    next(opening)
    assert engine.kernel.gates.closed
    opening.close()
    assert not engine.kernel.gates.closed
    assert gate.is_open

"""Long work: one at a time, in the order it came, a slice at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from topics.batch import RecordBatch
from topics.delivery.loop_budget import BUDGET_NS
from topics.engine.effects import PAUSE, Gate, Op, Wait, run
from topics.engine.settings import EngineSettings
from topics.errors import BatchTooLarge, InvalidRequest, ShuttingDown
from topics.http.api.long_bodies import LongBodies
from topics.storage.frames.append import encode_append
from topics.testing import ManualClock

SLICE_S = BUDGET_NS / 1e9


class Ticking(ManualClock):
    """Every look at it takes a while."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s, self._now_s = step_s, 0.0

    def monotonic(self) -> float:
        self._now_s += self._step_s
        return self._now_s


def quiet() -> LongBodies:
    return LongBodies(ManualClock())


def work(done: list[str], name: str, pauses: int = 1, *, fails: bool = False) -> Op[str]:
    done.append(f"{name} begins")
    for _ in range(pauses):
        yield PAUSE
    if fails:
        raise InvalidRequest(name)
    done.append(f"{name} ends")
    return name


def step(op: Op[str]) -> Wait | str:
    """Go on with an operation: what it waits for, or its answer."""
    try:
        return next(op)
    except StopIteration as end:
        answer: str = end.value
        return answer


def pauses(op: Op[str]) -> Iterator[Wait]:
    while not isinstance(wait := step(op), str):
        yield wait


def waits(wait: Wait | str) -> bool:
    return isinstance(wait, Gate) and not wait.is_open


def test_work_is_done_one_by_one_in_the_order_it_came() -> None:
    bodies, done = quiet(), list[str]()
    a, b, c = (bodies.alone(work(done, name)) for name in "abc")
    assert step(a) is PAUSE
    gates = [step(b), step(c)]
    assert all(map(waits, gates))
    assert step(a) == "a"
    assert [waits(gate) for gate in gates] == [False, True]
    assert step(b) is PAUSE
    assert step(b) == "b"
    assert not waits(gates[1])
    assert step(c) is PAUSE
    assert step(c) == "c"
    assert done == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
    assert run(bodies.alone(work(done, "d"))) == "d", "nobody is before it"


def test_nobody_overtakes_the_next_before_it_goes_on() -> None:
    bodies, done = quiet(), list[str]()
    a, b, late = (bodies.alone(work(done, name, pauses=0)) for name in ("a", "b", "late"))
    other = bodies.alone(work(done, "other"))
    assert step(other) is PAUSE
    assert waits(step(a))
    assert step(other) == "other"
    assert waits(step(b)), "the way is free, but it is the turn of another"
    assert step(a) == "a"
    assert waits(step(late))
    assert step(b) == "b"
    assert step(late) == "late"


def test_work_that_fails_lets_the_next_go_on() -> None:
    bodies, done = quiet(), list[str]()
    a, b = bodies.alone(work(done, "a", fails=True)), bodies.alone(work(done, "b"))
    step(a)
    gate = step(b)
    with pytest.raises(InvalidRequest):
        step(a)
    assert not waits(gate)
    assert step(b) is PAUSE
    assert step(b) == "b"


@pytest.mark.parametrize("given_up", [0, 1, 2])
def test_work_that_is_given_up_wherever_it_is_holds_up_nobody(given_up: int) -> None:
    bodies, done = quiet(), list[str]()
    ops = [bodies.alone(work(done, name)) for name in "abc"]
    for op in ops:
        step(op)
    ops.pop(given_up).close()
    for op in ops:
        assert list(pauses(op)) in ([], [PAUSE])
    assert [text for text in done if "ends" in text] == [
        f"{name} ends" for name in "abc" if name != "abc"[given_up]
    ]
    assert run(bodies.alone(work(done, "d"))) == "d"


def test_work_that_was_told_it_may_go_on_can_still_be_given_up() -> None:
    bodies, done = quiet(), list[str]()
    a, b, c = (bodies.alone(work(done, name)) for name in "abc")
    for op in (a, b, c):
        step(op)
    assert step(a) == "a"
    b.close()
    assert step(c) is PAUSE


def counting(count: int) -> Generator[None, None, str]:
    for _ in range(count):
        yield
    return "done"


@pytest.mark.parametrize(
    ("step_s", "expected"), [(0.0, 0), (SLICE_S, 9), (SLICE_S / 2, 4), (SLICE_S / 100, 0)]
)
def test_a_slice_is_as_many_steps_as_fit_into_its_time(step_s: float, expected: int) -> None:
    bodies = LongBodies(Ticking(step_s))
    found = list(pauses(bodies.slices(counting(9))))
    assert found == [PAUSE] * expected


def test_what_the_steps_raise_is_raised() -> None:
    def failing() -> Generator[None, None, str]:
        yield
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        run(quiet().slices(failing()))


def test_frames_are_prepared_for_what_is_within_limits() -> None:
    bodies, batch = quiet(), RecordBatch([b"1", b"2", b"3"])
    prepared = run(bodies.prepared(batch, EngineSettings(), key=None))
    frames, fact = prepared.finish(7, 1, 2, durable=True)
    assert (bytes(frames), fact) == encode_append(7, 1, 2, batch, durable=True)
    with pytest.raises(BatchTooLarge):
        run(bodies.prepared(batch, EngineSettings(max_batch_records=2), key=None))


def test_whoever_is_here_when_it_closes_is_refused() -> None:
    bodies, done = LongBodies(Ticking(SLICE_S)), list[str]()

    def long() -> Generator[None, None, str]:
        while True:
            yield

    begun, waiting = bodies.alone(bodies.slices(long())), bodies.alone(work(done, "b"))
    assert step(begun) is PAUSE
    gate = step(waiting)
    assert waits(gate)
    bodies.close()
    assert not waits(gate)
    for op in (waiting, begun, bodies.alone(work(done, "c"))):
        with pytest.raises(ShuttingDown):
            step(op)
    assert done == []

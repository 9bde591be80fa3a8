"""The state of a flow follows its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.spark.errors import FlowRuns, NoSuchFlow
from topics.spark.flows import state
from topics.spark.flows.state import State

Env = dict[str, str]
PATIENCE_S = 60.0

RUNNER = """
import os, signal, socket, sys, time
from topics.spark.flows import state

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1) if sys.argv[1] == "kindly" else None)
with state.hold("totals") as holder:
    holder.write(state.State(
        name="totals", status="running", pid=os.getpid(), host=socket.gethostname(), file="f",
        checkpoint="c", sources=["orders"], target="topic totals", server="s", master="local",
        started=1.0))
    print("holds", flush=True)
    while not asked:
        time.sleep(0.01)
    holder.update(status="stopped", ended=2.0)
"""


def a_state(**changes: object) -> State:
    known: dict[str, object] = {
        "name": "totals",
        "status": "running",
        "pid": os.getpid(),
        "host": "here",
        "file": "/flows/totals.yaml",
        "checkpoint": "/checkpoints/totals",
        "sources": ["orders"],
        "target": "topic totals",
        "server": "http://127.0.0.1:4000",
        "master": "local[*]",
        "started": 1.0,
    }
    return State(**(known | changes))  # type: ignore[arg-type]  # a mapping of known fields


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Env:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return {"XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def runner(env: Env, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the flow `totals`; it ends on SIGTERM if the test says `kindly`."""
    manner = getattr(request, "param", "kindly")
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, manner],
        env=os.environ | env,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_what_a_running_flow_writes_is_found(env: Env) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state(rows=5, lag={"orders": 7}))
        assert state.find("totals", env) == a_state(rows=5, lag={"orders": 7})
        holder.update(lag={"orders": 0}, batch=3)
        assert state.find("totals", env) == a_state(rows=5, lag={"orders": 0}, batch=3)
        assert state.find_all(env) == [state.find("totals", env)]


def test_a_shorter_state_leaves_nothing_of_a_longer_one(env: Env) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state(error="x" * 5000))
        holder.write(a_state())
        assert state.find("totals", env) == a_state()


def test_a_flow_cannot_run_twice(env: Env) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state(pid=77))
        with (
            pytest.raises(FlowRuns, match="process 77 on here; end it with `topics flow stop"),
            state.hold("totals", env),
        ):
            pass
        with state.hold("other", env):
            pass


def test_a_flow_can_run_again_after_it_ended(env: Env) -> None:
    for number in range(2):
        with state.hold("totals", env) as holder:
            holder.write(a_state(batch=number))
            holder.update(status="stopped")
    assert state.find("totals", env) == a_state(batch=1, status="stopped")


def test_a_killed_flow_is_said_to_be_lost(env: Env, runner: subprocess.Popen[str]) -> None:
    assert state.find("totals", env).status == "running"
    runner.kill()
    runner.wait()
    assert state.find("totals", env).status == "lost"
    assert state.stop("totals", timeout=0, env=env).status == "lost"


def test_stop_waits_for_the_end(env: Env, runner: subprocess.Popen[str]) -> None:
    stopped = state.stop("totals", timeout=PATIENCE_S, env=env)
    assert (stopped.status, stopped.ended) == ("stopped", 2.0)
    assert runner.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("runner", ["stubborn"], indirect=True)
def test_stop_gives_up_on_a_flow_that_does_not_end(env: Env, runner: subprocess.Popen[str]) -> None:
    assert state.is_running(state.stop("totals", timeout=0.2, env=env))
    assert runner.poll() is None


def test_a_flow_of_another_machine_is_not_signalled(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signalled"))
    with state.hold("totals", env) as holder:
        holder.write(a_state(host="elsewhere"))
        with pytest.raises(FlowRuns, match="runs on elsewhere; stop it there"):
            state.stop("totals", timeout=0, env=env)


def test_a_name_that_never_ran_is_not_found(env: Env) -> None:
    assert state.find_all(env) == []
    with pytest.raises(NoSuchFlow, match="none has run here yet"):
        state.find("totals", env)
    with state.hold("sums", env) as holder:
        holder.write(a_state(name="sums"))
    with pytest.raises(NoSuchFlow, match="there are: sums"):
        state.find("totals", env)


def test_readers_never_meet_half_of_a_rewrite(env: Env) -> None:
    """A writer that rewrites without pause, with texts of very different length."""
    program = (
        "import itertools\n"
        "from topics.spark.flows import state\n"
        "from tests.unit.spark.test_flow_state import a_state\n"
        "with state.hold('totals') as holder:\n"
        "    for number in itertools.count():\n"
        "        holder.write(a_state(batch=number, error='x' * (number % 3 * 9000)))\n"
        "        number or print('holds', flush=True)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | env | {"PYTHONPATH": root},
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            seen = [state.find("totals", env).batch for _ in range(300)]
        finally:
            writer.send_signal(signal.SIGKILL)
    assert None not in seen


def test_a_rewrite_that_takes_its_time_is_waited_for(env: Env) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state())
        file = state.folder(env) / "totals.json"
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        finishing = threading.Timer(0.5, file.write_bytes, [whole])
        finishing.start()
        assert state.find("totals", env) == a_state()
        finishing.join()


def test_half_of_a_rewrite_that_nobody_will_finish_is_no_flow(env: Env) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state())
    file = state.folder(env) / "totals.json"
    file.write_bytes(file.read_bytes()[:-20])
    assert state.find_all(env) == []


def test_a_writer_stopped_in_the_middle_of_a_rewrite_leaves_a_whole_text(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    cut = os.ftruncate

    def look_and_cut(handle: int, size: int) -> None:
        seen.append(state.find("totals", env).error)
        cut(handle, size)

    with state.hold("totals", env) as holder:
        monkeypatch.setattr(os, "ftruncate", look_and_cut)
        for error in ("x" * 5000, None, "x"):
            holder.write(a_state(error=error))
    assert seen == ["x" * 5000, None, "x"]


def test_looking_at_a_flow_does_not_keep_it_from_starting(
    env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    with state.hold("totals", env) as holder:
        holder.write(a_state())
    with (state.folder(env) / "totals.json").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))
        with state.hold("totals", env):
            pass

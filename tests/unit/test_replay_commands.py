"""A random test that failed says by which command it fails again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.seeds import FRESH, seed_for

ROOT = Path(__file__).resolve().parents[2]
RANDOM_TESTS = """
from hypothesis import Phase, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

ONCE = settings(max_examples=1, phases=[Phase.generate])

@ONCE
@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_numbers(left, right):
    print("drawn", left, right)
    assert False

class Machine(RuleBasedStateMachine):
    @rule(number=st.integers(0, 2**64))
    def step(self, number):
        print("drawn", number)
        assert False

TestMachine = Machine.TestCase
TestMachine.settings = ONCE
"""
PLUGINS = ("-p", "_hypothesis_pytestplugin", "-p", "tests.conftest", "-p", "no:cacheprovider")


def failing(folder: Path, *options: str) -> str:
    """Run the random tests with this project's settings; what pytest said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, *options, f"--rootdir={folder}", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_the_printed_command_draws_the_same_again(tmp_path: Path) -> None:
    tmp_path.joinpath("test_random.py").write_text(RANDOM_TESTS)
    tmp_path.joinpath("pytest.ini").write_text("[pytest]")
    first = failing(tmp_path, "--hypothesis-profile=quick")
    again = r"pytest (--hypothesis-seed=\d+) (--hypothesis-profile=quick) '(.+)'"
    commands = re.findall(again, first)
    assert [test for _, _, test in commands] == [
        "test_random.py::test_numbers",
        "test_random.py::TestMachine::runTest",
    ]
    drawn = re.findall(r"drawn [\d ]+", first)
    assert drawn
    seed, profile, _ = commands[0]
    assert re.findall(r"drawn [\d ]+", failing(tmp_path, seed, profile)) == drawn


def test_two_runs_draw_the_same_unless_new_draws_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(FRESH, raising=False)
    monkeypatch.delenv("TOPICS_SOME_SEED", raising=False)
    assert seed_for("TOPICS_SOME_SEED") == seed_for("TOPICS_SOME_SEED")
    assert seed_for("TOPICS_SOME_SEED", 1) != seed_for("TOPICS_SOME_SEED", 2)
    monkeypatch.setenv(FRESH, "1")
    assert len({seed_for("TOPICS_SOME_SEED") for _ in range(20)}) > 1
    monkeypatch.setenv("TOPICS_SOME_SEED", "7")
    assert {seed_for("TOPICS_SOME_SEED", number) for number in range(20)} == {7}

"""A forked child must not touch the log of its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import topics

PROGRAM = """
import inspect, os, sys, topics
from topics.errors import ForkedChild

ARGUMENTS = {
    "topic": "t", "cursor": "c", "app": "a", "records": {"data": "child"}, "rows": [], "parts": [],
    "topics": ["t"], "name": "n", "handler": print,
}

log = topics.open(sys.argv[1])
log.create("t", durability="fsync")
log.append("t", {"data": "parent, before"})


def call(name):
    method = getattr(log, name)
    wanted = {
        parameter.name: ARGUMENTS.get(parameter.name, 1)
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD
    }
    answer = method(**wanted)
    if inspect.isgenerator(answer):
        next(answer)


child = os.fork()
if not child:
    names = [name for name in dir(type(log)) if not name.startswith("_") and name != "close"]
    assert len(names) > 15
    for name in names:
        try:
            call(name)
        except ForkedChild:
            continue
        except BaseException as error:
            print(name, "raised", repr(error), flush=True)
        else:
            print(name, "was allowed", flush=True)
    log.close()  # lets go of nothing that is the parent's
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
log.append("t", {"data": "parent, after"})
try:
    topics.open(sys.argv[1])
except topics.errors.DirectoryLocked:
    pass
else:
    print("the lock went with the child", flush=True)
log.close()
"""


def test_st08_every_call_in_a_forked_child_raises_and_the_parent_is_unharmed(
    tmp_path: Path,
) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (told.stdout, told.stderr, told.returncode) == ("", "", 0)
    with topics.open(tmp_path / "data") as log:
        assert [record.data for record in log.read("t").records] == [
            "parent, before",
            "parent, after",
        ]
        assert log.cursors("t") == []


def test_a_child_that_ends_leaves_the_lock_to_the_parent(tmp_path: Path) -> None:
    program = """
import os, sys, topics
log = topics.open(sys.argv[1])
log.append("t", {"data": 1})
child = os.fork()
if not child:
    sys.exit(0)  # a tidy end, with all that runs at exit
os.waitpid(child, 0)
log.append("t", {"data": 2})
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "data")], check=False)
    assert ended.returncode == -9
    with topics.open(tmp_path / "data") as log:
        assert [record.data for record in log.read("t").records] == [1, 2]


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    program = """
import os, sys, topics
log = topics.open(sys.argv[1])
log.append("t", {"data": 1})
if not os.fork():
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"child\n"
        parent.kill()
        assert parent.wait() == -9
        with topics.open(tmp_path / "data") as log:
            assert len(log.read("t").records) == 1
        parent.stdin.close()  # lets the child go

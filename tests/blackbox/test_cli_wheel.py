"""The package as people get it: the wheel, in an environment that holds nothing else.

What it depends on comes from the index, as it would for them, in the versions of the lock file.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE_LOCK = ROOT / "requirements" / "base.txt"
TRIES = 4
PAUSE_S = 5.0
IMPORT_CLIENT = """
import sys, time
started, worked = time.perf_counter(), time.process_time()
import topics
from topics.client.sync import RemoteLog
took = f"{(time.perf_counter() - started) * 1000:.0f} ms"
cpu = f"{(time.process_time() - worked) * 1000:.0f} ms"
heavy = ("numpy", "uvloop", "h2", "rich", "click", "pyarrow", "prometheus_client")
ours = ("topics.server", "topics.http", "topics.engine", "topics.storage", "topics.embedded")
print(f"{took}, {cpu} of them at work", file=sys.stderr)
print([m for m in sys.modules if m.split(".")[0] in heavy or m.startswith(ours)])
"""
TRY_OUT = """
import topics
with topics.open("data") as log:
    log.append("orders", [{"data": {"id": 1}, "tag": "user-7"}])
    for record in log.read("orders").records:
        print(topics.__file__, record.seq, record.data)
"""

WRONG = """
import topics, topics.aio
from pathlib import Path

log = topics.open(Path("data"))
log.create("t", durabilty="fsync")  # call-arg
log.create("t", durability="fsnyc")  # arg-type
log.create("t", ttl_ms="1h")  # arg-type
log.configure("t", cap_record=5)  # call-arg
log.append("t", {"data": 1}, config={"durabilty": "disk"})  # arg-type
row: topics.Draft = {"data": 1, "tga": "x"}  # typeddict-unknown-key
log.producer("t", linger=5)  # call-arg
log.consumer("t", name="c", start="begin")  # arg-type
log.worker("t", print, concurency=2)  # call-arg
log.raed("t")  # attr-defined
topics.open("data", wal_shard=1)  # call-overload
topics.open("http://127.0.0.1", tokn="key")  # call-overload
topics.open("http://127.0.0.1").maintain()  # union-attr
topics.open("http://127.0.0.1", token="key").maintain()  # attr-defined
topics.aio.open("http://127.0.0.1", tokn="key")  # call-arg
topics.opne("data")  # attr-defined
topics.Recrod  # attr-defined
topics.aio.opne("http://127.0.0.1")  # attr-defined
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fetch(*command: object, cwd: Path) -> None:
    """Run what needs the network, again if it fails: that is often over soon."""
    for _ in range(TRIES - 1):
        if not subprocess.run([*map(str, command)], check=False, cwd=cwd).returncode:
            return
        time.sleep(PAUSE_S)
    run(*command, cwd=cwd)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel in it."""
    scratch = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch, cwd=ROOT)
    (wheel,) = scratch.glob("topics-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", scratch / "env", cwd=scratch)
    python = scratch / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    pinned = re.findall(r"^[\w.-]+==[^\s;\\]+", BASE_LOCK.read_text(), re.MULTILINE)
    constraints = scratch / "constraints.txt"
    constraints.write_text("\n".join(pinned))
    fetch(*pip, "install", "--no-compile", "-c", constraints, wheel, cwd=scratch)
    return python.parent


def test_the_wheel_brings_a_working_command_and_library(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "topics", "--version", cwd=tmp_path).startswith("topics 0.")
    where, seq, data = run(installed / "python", "-c", TRY_OUT, cwd=tmp_path).split(" ", 2)
    assert Path(where).is_relative_to(installed.parent)
    assert (seq, data) == ("1", "{'id': 1}\n")
    listed = run(installed / "topics", "ls", "--dir", "data", cwd=tmp_path)
    assert listed.splitlines()[1].split() == ["orders", "1", "1", "1", "8B"]


def test_importing_the_client_loads_no_server_and_no_numbers(
    installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [installed / "python", "-c", IMPORT_CLIENT],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    with capsys.disabled():
        print(f"\nimporting the client took {done.stderr.strip()}")
    assert done.stdout == "[]\n"


def test_a_checker_passes_a_right_program_and_finds_every_slip_in_a_wrong_one(
    installed: Path, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(Path(__file__).with_name("typed_program.py").read_text())
    wrong.write_text(WRONG)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed / "python")
    options = ("--config-file=", "--hide-error-context", "--no-error-summary", "--no-pretty")
    done = subprocess.run(
        [*map(str, (*mypy, *options, right, wrong))],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    said = re.findall(r"^(\w+\.py):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    marks = ((n, re.search(r"# ([\w-]+)$", text)) for n, text in enumerate(WRONG.split("\n"), 1))
    expected = [("wrong.py", str(number), mark[1]) for number, mark in marks if mark]
    assert list(dict.fromkeys(said)) == expected, done.stdout + done.stderr

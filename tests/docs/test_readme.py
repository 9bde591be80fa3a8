"""What the README prints runs as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/topics .*?(?= +#|$)", README, re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(sample: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", sample], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_the_five_lines_run_as_printed(tmp_path: Path) -> None:
    (sample,) = SAMPLES
    promised = re.search(r"This prints `(.*?)`", README)
    assert promised is not None
    assert run(sample, tmp_path) == promised[1] + "\n"


def test_the_five_lines_keep_what_they_wrote(tmp_path: Path) -> None:
    (sample,) = SAMPLES
    run(sample, tmp_path)
    assert run(sample, tmp_path) == ("[(1, {'id': 1, 'eur': 40}), (2, {'id': 1, 'eur': 40})]\n")


def test_the_five_lines_are_few() -> None:
    (sample,) = SAMPLES
    assert len([line for line in sample.splitlines() if line]) == 5


def test_the_commands_run_as_printed(tmp_path: Path) -> None:
    run(SAMPLES[0], tmp_path)
    directory_commands = [command for command in COMMANDS if " serve " not in command]
    assert len(directory_commands) == 3
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in directory_commands:
        words = shlex.split(command.removeprefix(".venv/bin/"))
        told = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert told.stdout, command
        assert told.stderr == "", command


def test_the_server_and_its_calls_run_as_printed_through_a_restart(tmp_path: Path) -> None:
    (serve,) = [command for command in COMMANDS if " serve " in command]
    calls = re.findall(r"^curl .*$", README, re.MULTILINE)
    assert len(calls) == 2
    port_file = tmp_path / "address"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TOPICS_PORT": "0",  # instead of the printed port, which may be taken here
        "TOPICS_PORT_FILE": str(port_file),
    }
    words = shlex.split(serve.removeprefix(".venv/bin/"))
    answers = []
    for call in calls:
        port_file.unlink(missing_ok=True)
        with (tmp_path / "log").open("w") as log:
            server = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=log)
        try:
            curl = shlex.split(call.replace("localhost:4000", wait_for_address(port_file, server)))
            retry = ["--silent", "--show-error", "--retry", "60", "--retry-delay", "1"]
            answers.append(subprocess.check_output([*curl, *retry], text=True))
        finally:
            server.terminate()
            server.wait(timeout=120)
        assert server.returncode == 0
    assert '"first_seq":1' in answers[0]
    assert '"records":[{"$seq":1,' in answers[1]


def wait_for_address(port_file: Path, server: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while not port_file.exists():
        assert server.poll() is None, "the server did not start"
        assert time.monotonic() < deadline, "the server did not bind"
        time.sleep(0.05)
    return port_file.read_text().strip()


def test_every_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} points to {target}"

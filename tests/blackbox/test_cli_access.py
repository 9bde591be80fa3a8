"""Commands on a server that asks for keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from tests.blackbox.conftest import ServerProcess
from tests.unit.cli.runner import Answer, be_patient, clean_environment, topics

from topics.cli._app import app

SERVER_ENV = {"TOPICS_API_KEYS": "master,reader:read"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path / "config")
    be_patient(monkeypatch)


def key_file(folder: Path, key: str) -> Path:
    file = folder / key
    file.write_text(f"{key}\n")
    file.chmod(0o600)
    return file


def bad_checks(answer: Answer) -> dict[str, str]:
    return {c["name"]: c["remedy"] for c in answer.json["checks"] if c["state"] == "bad"}


def test_without_a_key_or_with_a_wrong_one_everything_is_refused(
    shared_server: ServerProcess, tmp_path: Path
) -> None:
    where = ("--url", shared_server.url)
    wrong = ("--token-file", key_file(tmp_path, "wrong"))
    for command in (("ls",), ("top", "--once"), ("tail", "orders"), ("watch", "orders")):
        for more in ((), wrong):
            refused = topics(*command, *where, *more)
            assert (refused.code, refused.out) == (4, "")
            assert "a valid API key is required" in refused.err
            assert "--token-file PATH" in refused.err
    doctor = topics("doctor", *where, "--json")
    assert (doctor.code, bad_checks(doctor)) == (
        1,
        {"key": "name its file: topics doctor --token-file PATH"},
    )


def test_a_key_does_what_it_is_allowed_to(shared_server: ServerProcess, tmp_path: Path) -> None:
    where = ("--url", shared_server.url)
    master = ("--token-file", key_file(tmp_path, "master"))
    reader = ("--token-file", key_file(tmp_path, "reader"))
    assert topics("produce", "orders", *where, *master, stdin="1\n").code == 0
    assert topics("read", "orders", *where, *reader).out.endswith('"1"\n')
    refused = topics("produce", "orders", *where, *reader, stdin="2\n")
    assert refused.code == 4
    assert "lacks the write scope" in refused.err
    assert "appended nothing to orders before that" in refused.err
    assert topics("drop", "orders", "--yes", *where, *reader).code == 4


def test_a_key_comes_from_a_context_or_from_the_environment(
    shared_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_file(tmp_path, "master")
    topics("context", "add", "prod", "--url", shared_server.url, "--token-file", key)
    assert topics("ls").code == topics("ls", "--context", "prod").code == 0
    monkeypatch.setenv("TOPICS_URL", shared_server.url)
    assert topics("ls").code == 4
    monkeypatch.setenv("TOPICS_TOKEN", "master")
    assert topics("ls").code == 0
    assert topics("doctor").code == 0


def test_a_shell_completes_topics_of_the_server_the_line_leads_to(
    shared_server: ServerProcess, tmp_path: Path
) -> None:
    where = ["--url", shared_server.url, "--token-file", str(key_file(tmp_path, "master"))]
    for name in ("invoices", "invoices.eu", "other"):
        topics("create", name, "--if-missing", *where)
    shell = BashComplete(app, {}, "topics", "_TOPICS_COMPLETE")
    offered = [item.value for item in shell.get_completions(["tail", *where], "inv")]
    assert offered == ["invoices", "invoices.eu"]
    assert shell.get_completions(["tail", *where[:2]], "inv") == []


def test_a_reader_that_has_enough_ends_a_command_quietly(
    shared_server: ServerProcess, tmp_path: Path
) -> None:
    where = ("--url", shared_server.url, "--token-file", str(key_file(tmp_path, "master")))
    topics("produce", "long", *where, stdin=f"{'x' * 500}\n" * 1000)
    command = [sys.executable, "-m", "topics.cli", "read", "long", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
    assert reading.returncode == 0

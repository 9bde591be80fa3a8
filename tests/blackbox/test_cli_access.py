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

SERVER_ENV = {"TOPICS_API_KEYS": "master,reader:read,limited:read:mine."}


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
            says = "does not know this API key" if more else "an API key is required"
            assert says in refused.err
            assert "--token-file PATH, or in TOPICS_TOKEN" in refused.err
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


VIEWS = [
    ("ls",),
    ("ls", "hid"),
    ("describe", "mine.jobs"),
    ("config", "mine.jobs"),
    ("read", "mine.in"),
    ("tail", "mine.in"),
    ("watch", "mine.in", "--all", "--for", "10ms"),
    ("audit",),
    ("audit", "mine.in"),
    ("explain", "mine.in"),
    ("explain", "mine.jobs"),
    ("explain", "mine.in/slow"),
    ("explain", "mine.in#1"),
    ("cursor", "ls"),
    ("cursor", "ls", "mine.in"),
    ("cursor", "get", "mine.in", "slow"),
    ("router", "ls"),
    ("router", "get", "mine.copy"),
    ("queue", "stats", "mine.jobs"),
    ("queue", "peek", "mine.jobs"),
    ("top", "--once", "--interval", "100ms"),
    ("doctor",),
]


@pytest.fixture(scope="module")
def divided(shared_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Topics, routers, a queue and cursors; half of them out of sight of the limited key."""
    folder = tmp_path_factory.mktemp("keys")
    where = ("--url", shared_server.url, "--token-file", key_file(folder, "master"))
    for line in (
        "create hidden.dead",
        "create mine.jobs type=queue dead_letter=hidden.dead max_deliveries=1",
        "router put mine.copy --from mine.in --to mine.out",
        "router put mine.away --from mine.in --to hidden.out",
        "router put hidden.back --from hidden.in --to mine.back",
    ):
        done = topics(*line.split(), *where)
        assert done.code == 0, done.err
    for topic in ("mine.in", "mine.jobs", "hidden.in"):
        assert topics("produce", topic, *where, stdin="1\n2\n").code == 0
    for topic, name in (("mine.in", "slow"), ("hidden.in", "hidden.slow")):
        assert topics("cursor", "set", topic, name, 1, *where).code == 0


@pytest.mark.parametrize("as_json", [False, True], ids=["lines", "json"])
@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
@pytest.mark.usefixtures("divided")
def test_every_view_works_with_a_limited_key_and_shows_only_what_it_may_see(
    shared_server: ServerProcess, tmp_path: Path, view: tuple[str, ...], as_json: bool
) -> None:
    where = ("--url", shared_server.url, "--token-file", key_file(tmp_path, "limited"))
    shown = topics(*view, *where, *(["--json"] if as_json else []))
    assert shown.code == 0, shown.err
    assert "hidden" not in shown.out + shown.err
    assert "mine." in shown.out or view in {("ls", "hid"), ("doctor",)} or "mine." in view[-1]


@pytest.mark.usefixtures("divided")
def test_what_a_limited_key_may_not_see_is_refused_by_every_view(
    shared_server: ServerProcess, tmp_path: Path
) -> None:
    where = ("--url", shared_server.url, "--token-file", key_file(tmp_path, "limited"))
    for view in VIEWS:
        asked = tuple(part.replace("mine.", "hidden.") for part in view)
        if asked != view:
            # Routers are looked for in the list of those that the key may see.
            assert topics(*asked, *where).code == (3 if "router" in asked else 4), asked
    assert topics("router", "get", "mine.away", *where).code == 3, "it leads out of sight"

"""Which log is meant, and that keys stay where they belong."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from topics.client.targets import (
    DEFAULT_URL,
    Context,
    Contexts,
    Target,
    UnknownContext,
    contexts_path,
    load_contexts,
    read_token,
    resolve,
    save_contexts,
)
from topics.errors import InvalidRequest, InvalidSetting

Env = dict[str, str]


@pytest.fixture
def env(tmp_path: Path) -> Env:
    return {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nowhere"}


@pytest.fixture
def prod(env: Env, tmp_path: Path) -> Env:
    """With a context `prod` that has a key, and `here`, a directory; `prod` is the current one."""
    (tmp_path / "key").write_text(" secret\n")
    contexts = Contexts().with_context(
        "prod", Context(url="https://log.example:4000", token_file=str(tmp_path / "key"))
    )
    save_contexts(contexts.with_context("here", Context(dir="/data/here")), env)
    return env


def test_without_any_word_it_is_the_server_of_this_machine(env: Env) -> None:
    assert resolve(env=env) == Target(url=DEFAULT_URL, source="default")


def test_the_more_outspoken_choice_wins(prod: Env) -> None:
    by_context = resolve(env=prod)
    assert (by_context.url, by_context.source) == ("https://log.example:4000", "context prod")
    prod["TOPICS_URL"] = "http://from-env:1/"
    by_env = resolve(env=prod)
    assert (by_env.url, by_env.source) == ("http://from-env:1", "TOPICS_URL")
    named = resolve(context="here", env=prod)
    assert (named.path, named.url, named.source) == ("/data/here", None, "context here")
    assert resolve(url="http://x:2", context="here", env=prod).url == "http://x:2"
    assert resolve(dir="/d", context="prod", env=prod).path == "/d"


def test_an_address_and_a_directory_together_are_refused(env: Env) -> None:
    with pytest.raises(InvalidRequest, match="not both"):
        resolve(url="http://x", dir="/d", env=env)


def test_a_directory_is_made_absolute(env: Env) -> None:
    assert resolve(dir="data", env=env).path == os.path.abspath("data")


def test_a_context_brings_its_own_key_and_a_given_one_replaces_it(prod: Env) -> None:
    prod["TOPICS_TOKEN"] = "other"
    assert resolve(env=prod).token == "secret"
    assert resolve(token="mine", env=prod).token == "mine"


def test_the_key_of_the_environment_is_not_sent_to_another_server(env: Env) -> None:
    env["TOPICS_TOKEN"] = "k"
    assert resolve(env=env).token == "k"
    assert resolve(url="http://x:1", env=env).token == "k"
    env["TOPICS_URL"] = "http://meant:1"
    assert resolve(env=env).token == "k"
    assert resolve(url="http://meant:1/", env=env).token == "k"
    assert resolve(url="http://other:1", env=env).token is None


def test_a_key_never_shows_up_in_a_traceback(prod: Env) -> None:
    assert "secret" not in repr(resolve(env=prod))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "4000",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x?y=1",
        "http://x:0",
        "http://[::1",
        "http://a..b",
    ],
)
def test_what_is_no_address_is_refused(url: str, env: Env) -> None:
    with pytest.raises(InvalidSetting, match="like http://host:4000"):
        resolve(url=url, env=env)


def test_a_host_with_a_port_is_an_address(env: Env) -> None:
    assert resolve(url="localhost:4000", env=env).url == "http://localhost:4000"
    assert resolve(url="log.example:4000/", env=env).url == "http://log.example:4000"
    env |= {"TOPICS_URL": "127.0.0.1:4000", "TOPICS_TOKEN": "k"}
    assert resolve(env=env).token == resolve(url="http://127.0.0.1:4000", env=env).token == "k"


def test_a_key_inside_an_address_is_refused_without_repeating_it(env: Env) -> None:
    with pytest.raises(InvalidSetting) as refused:
        resolve(url="http://user:hush@x", env=env)
    assert "hush" not in str(refused.value)


def test_an_unknown_context_names_those_that_exist(prod: Env, tmp_path: Path) -> None:
    with pytest.raises(UnknownContext, match='"stage" does not exist; there are: here, prod'):
        resolve(context="stage", env=prod)
    with pytest.raises(UnknownContext, match="topics context add"):
        resolve(context="stage", env={"XDG_CONFIG_HOME": str(tmp_path / "empty")})


def test_contexts_are_kept_for_their_owner_only_and_replaced_in_one_step(
    prod: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(contexts_path(prod))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.read_bytes()

    def fail(source: str, dest: str) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        save_contexts(Contexts(), prod)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_first_context_becomes_the_current_one_and_a_removed_one_is_not_current(
    prod: Env,
) -> None:
    contexts = load_contexts(prod)
    assert contexts.current == "prod"
    assert contexts.using("here").current == "here"
    assert contexts.without("prod").current is None
    assert contexts.without("here").current == "prod"
    with pytest.raises(UnknownContext):
        contexts.without("stage")
    with pytest.raises(UnknownContext):
        contexts.using("stage")


@pytest.mark.parametrize("name", ["", "a b", ".x", "x/y", "x" * 65])
def test_a_context_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name for a context"):
        Contexts().with_context(name, Context(url="http://x"))


def test_a_context_is_a_server_or_a_directory() -> None:
    for context in (Context(), Context(url="http://x", dir="/d")):
        with pytest.raises(InvalidRequest, match="either"):
            Contexts().with_context("x", context)


def test_a_damaged_file_of_contexts_is_named(prod: Env) -> None:
    Path(contexts_path(prod)).write_text("{")
    with pytest.raises(InvalidSetting, match=r"contexts\.json"):
        resolve(env=prod)


def test_a_key_file_holds_one_key(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a b")
    (tmp_path / "none").write_text("\n")
    for name in ("two", "none", "absent"):
        with pytest.raises(InvalidSetting, match="token_file"):
            read_token(str(tmp_path / name))

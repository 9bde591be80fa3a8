"""`topics serve` before the server: its flags, and what the process needs."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator

import click
import pytest
from tests.unit.cli.runner import topics

from topics.cli.serve import raise_open_file_limit, serve, set_up_logging
from topics.errors import InvalidSetting
from topics.server.settings import SECTIONS, SETTINGS


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers, root.level = handlers, level


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """Pretend these limits; returns what is set instead."""
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda what, new: done.append(new))
    return done


def test_every_setting_is_a_flag_with_its_variable_in_the_help() -> None:
    options = {option.name: option for option in serve.params if isinstance(option, click.Option)}
    for setting in SETTINGS:
        option = options[setting.name]
        assert setting.flag in option.opts
        assert setting.variable in (option.help or "")


def test_a_flag_that_is_not_given_leaves_its_variable_alone() -> None:
    given = serve.make_context("serve", [], help_option_names=["-h", "--help"]).params
    assert {given[setting.name] for setting in SETTINGS} == {None}


def test_the_limit_on_open_files_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = limits(monkeypatch, 1024, 4096)
    raise_open_file_limit()
    assert done == [(4096, 4096)]


def test_no_limit_on_open_files_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    raise_open_file_limit()


def test_too_few_open_files_refuse_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 100, 511)
    with pytest.raises(InvalidSetting, match="at least 512; got 511"):
        raise_open_file_limit()


def test_log_lines_go_to_stderr_and_tell_level_and_origin(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("warning")
    logging.getLogger("topics.server").info("not shown")
    logging.getLogger("topics.server").warning("shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "WARNING  topics.server: shown" in captured.err
    assert "not shown" not in captured.err


def test_the_help_lists_every_setting_once_by_what_it_is_about() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(s.name for s in SETTINGS if not s.is_for_tests)
    shown = topics("serve", "--help").out
    for title in SECTIONS:
        assert f"\n{title}:\n" in shown
    assert "--test-" not in shown
    assert "--log-level" in shown

"""What a server measured: bounded, and taken in short steps."""

from __future__ import annotations

import math

import msgspec
import pytest

from topics.core.catalog import Catalog, StagingApp
from topics.core.tail import NoHistory
from topics.engine.effects import PAUSE, run
from topics.http.api import history
from topics.http.api.history import _apps, _Lines


def put(lines: _Lines, step: int, **values: float) -> None:
    lines.blank(step)
    for name, value in values.items():
        lines.put(step, (name,), value)


def test_the_line_that_stood_still_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_LINES", 3)
    lines = _Lines()
    put(lines, 0, a=1, b=1, c=1)
    put(lines, 1, a=1, b=0, c=math.nan)
    put(lines, 2, b=0, d=0)
    assert {name for (name,) in lines.by_name} == {"a", "b", "c"}, "no line for what never moved"
    put(lines, 3, d=1)
    assert {name for (name,) in lines.by_name} == {"a", "c", "d"}
    put(lines, 4, e=1, f=1)
    assert {name for (name,) in lines.by_name} == {"d", "e", "f"}


def test_long_answers_to_commits_are_decoded_with_pauses_between_them() -> None:
    catalog = Catalog(max_keys=1, history=lambda _: NoHistory())
    topics = {f"topic-{n}": {"first_seq": 1, "last_seq": 1, "count": 1} for n in range(2000)}
    result = msgspec.json.encode(topics)
    for name in ("one", "two", "three"):
        catalog.apps[name] = StagingApp(epoch=1, result=result, last_use_ms=0)
    assert [*_apps(catalog)] == [PAUSE] * 3
    assert [found.topic_count for found in run(_apps(catalog))] == [2000] * 3

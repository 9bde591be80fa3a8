"""`topics top` as a stream of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.cli.runner import topics

from topics.cli import top
from topics.cli._exit import INTERRUPTED
from topics.cli._sampling import Sample, Sampler
from topics.errors import Unreachable

GONE = Unreachable("http://h", reason="refused")


def test_json_lines_go_on_when_the_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Sample | BaseException] = [Sample(0.0), Sample(1.0), GONE, GONE, Sample(4.0)]
    looks += [GONE, KeyboardInterrupt()]

    def sample() -> Sample:
        look = looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        return look

    @contextmanager
    def sampling(_where: object) -> Iterator[Sampler]:
        yield sample

    monkeypatch.setattr(top, "_sampling", sampling)
    monkeypatch.setattr(top, "_sleep", lambda _seconds: False)
    answer = topics("top", "--json", "--url", "http://h")
    assert answer.code == INTERRUPTED
    assert [line["seconds"] for line in answer.json_lines] == [1.0, 3.0]
    told = [json.loads(line) for line in answer.err.splitlines() if line.startswith("{")]
    assert [line["error"]["code"] for line in told] == ["unreachable"] * 2  # once an episode

from pathlib import Path
from typing import Any

import pytest

import topics
import topics.aio
from topics.errors import InvalidRequest

HERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("timeout", 0, "seconds above 0"),
        ("timeout", float("nan"), "seconds above 0"),
        ("heartbeat", "5s", "seconds above 0"),
        ("retries", -1, "whole number from 0"),
        ("retries", 1.5, "whole number from 0"),
        ("connections", 0, "whole number from 1"),
        ("tokn", "x", "known: token, timeout"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_before_anything_is_sent(
    setting: str, value: object, advice: str
) -> None:
    doors: list[Any] = [topics.open, topics.aio.open]
    for door in doors:
        with pytest.raises(InvalidRequest, match=advice) as caught:
            door(HERE, **{setting: value})
        assert setting in str(caught.value)


def test_a_misspelt_address_is_not_taken_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="looks like http://"):
        topics.open("htp://localhost:4000")
    assert list(tmp_path.iterdir()) == []

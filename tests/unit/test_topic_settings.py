"""A setting of a topic is declared once, and everything else follows."""

import re
from pathlib import Path

import pytest

import topics
from topics.errors import InvalidRequest
from topics.topic_settings import DEFAULTS, NAMES, TopicSettings, known, known_settings
from topics.wire.requests.topics import ConfigBody
from topics.wire.shapes import Config


def test_the_settings_of_a_topic_have_the_same_names_everywhere() -> None:
    for names in (
        TopicSettings.__annotations__,
        ConfigBody.__struct_fields__,
        Config.__struct_fields__,
        known(),
    ):
        assert tuple(names) == NAMES


def test_every_setting_has_a_help_text_and_a_default() -> None:
    assert all(setting.help for setting in known().values())
    assert tuple(DEFAULTS) == NAMES


def test_a_misspelt_setting_is_refused_with_what_was_meant() -> None:
    with pytest.raises(InvalidRequest, match="no setting 'durabilty'; did you mean durability"):
        known_settings({"ttl_ms": 5, "durabilty": "fsync"})
    with pytest.raises(InvalidRequest, match="no setting 'colour'; known: type, ttl_ms, "):
        known_settings({"colour": "red"})


def test_settings_are_handed_on_as_they_are() -> None:
    given = {"durability": "fsync", "dead_letter": None}
    assert known_settings(given) == given


@pytest.mark.parametrize(
    ("name", "obeyed_in"),
    [("auto_priority", "core/priority.py"), ("auto_create", "engine/writes/append.py")],
)
def test_a_setting_is_named_where_it_is_declared_and_where_it_is_obeyed(
    name: str, obeyed_in: str
) -> None:
    root = Path(topics.__file__).parent
    named = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(rf"\b{name}\b", path.read_text())
    }
    assert named == {"topic_settings.py", obeyed_in}

import pytest

from topics.core.config import FIELDS
from topics.errors import InvalidRequest
from topics.wire.requests.topics import ConfigBody
from topics.wire.settings import NAMES, known_settings


def test_the_settings_of_a_topic_have_the_same_names_everywhere() -> None:
    assert set(NAMES) == FIELDS == set(ConfigBody.__struct_fields__)


def test_a_misspelt_setting_is_refused_with_what_was_meant() -> None:
    with pytest.raises(InvalidRequest, match="no setting 'durabilty'; did you mean durability"):
        known_settings({"ttl_ms": 5, "durabilty": "fsync"})
    with pytest.raises(InvalidRequest, match="no setting 'colour'; known: type, ttl_ms, "):
        known_settings({"colour": "red"})


def test_settings_are_handed_on_as_they_are() -> None:
    given = {"durability": "fsync", "dead_letter": None}
    assert known_settings(given) == given

"""Topic configuration: defaults, clamps, refusals."""

import pytest

from topics.core.config import check_topic_name, parse, parse_json
from topics.errors import InvalidRequest
from topics.topic_settings import NAMES, TopicConfig


def test_what_is_left_out_has_its_default() -> None:
    assert parse({}) == TopicConfig()
    assert len(NAMES) == 17


@pytest.mark.parametrize(
    ("sent", "durability"),
    [
        ({}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": True, "durability": None}, "fsync"),
        ({"durability": "ephemeral"}, "ephemeral"),
    ],
)
def test_durability_wins_over_durable(sent: dict[str, object], durability: str) -> None:
    config = parse(sent)
    assert config.durability == durability
    assert config.durable == (durability == "fsync")


def test_lease_and_jitter_are_clamped() -> None:
    low = parse({"lease_ms": 1, "claim_jitter_ms": 10**6})
    high = parse({"lease_ms": 10**12})
    assert (low.lease_ms, low.claim_jitter_ms, high.lease_ms) == (100, 5000, 86_400_000)


@pytest.mark.parametrize(
    "sent",
    [
        {"ttl_ms": -1},
        {"cap_records": 1 << 64},
        {"ttl_ms": "5"},
        {"ttl_ms": 1.5},
        {"discard": "new"},
        {"type": "stream"},
        {"durability": "eternal"},
        {"priority": 1 << 31},
        {"dead_letter": "no spaces"},
        {"type": "queue", "dead_letter": "self"},
    ],
)
def test_what_makes_no_sense_is_refused(sent: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        parse(sent, topic="self")


def test_a_stored_configuration_reads_back_as_it_was() -> None:
    config = parse({"type": "queue", "ttl_ms": 5, "dead_letter": "d", "priority": -3})
    assert parse_json(config.to_json()) == config
    assert TopicConfig(**config.to_dict()) == config
    with pytest.raises(InvalidRequest):
        parse_json(b"{")


@pytest.mark.parametrize("name", ["a", "A.b_c:d-9", "x" * 255])
def test_sensible_names_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "x" * 256, "a\n", "ä", "a/b"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_topic_name(name)


def test_a_refused_name_is_shown_only_as_far_as_a_name_goes() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_topic_name("x" * 5_000_000)
    assert len(str(refused.value)) < 500
    with pytest.raises(InvalidRequest) as refused:
        parse({"dead_letter": "x" * 5_000_000})
    assert len(str(refused.value)) + len(str(refused.value.detail)) < 1000

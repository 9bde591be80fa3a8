"""Values as people type them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.cli.runner import topics

from topics.cli._exit import USAGE
from topics.cli._types import bytes_of, setting_defaults, span_ms
from topics.topic_settings import NAMES


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5", 5),
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
    ],
)
def test_lengths_of_time_have_units(text: str, ms: int) -> None:
    assert span_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "1.5s", "-1s", "5w", "1h30m", "ms5"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    assert span_ms(text) is None


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("5B", 5), ("2kB", 2000), ("2KiB", 2048), ("1GiB", 1 << 30)]
)
def test_sizes_have_units(text: str, count: int) -> None:
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "1K", "1.5MiB", "-5", "MiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    assert bytes_of(text) is None


def test_every_setting_of_a_topic_can_be_typed(tmp_path: Path) -> None:
    typed = {
        "type": ("queue", "queue"),
        "ttl_ms": ("1h", 3_600_000),
        "cap_records": ("10", 10),
        "cap_bytes": ("1MiB", 1 << 20),
        "discard": ("reject", "reject"),
        "durable": ("true", True),
        "durability": ("fsync", "fsync"),
        "priority": ("-3", -3),
        "auto_priority": ("false", False),
        "auto_create": ("false", False),
        "idempotency_window_ms": ("1m", 60_000),
        "dedupe_node": ("false", False),
        "lease_ms": ("5s", 5000),
        "claim_jitter_ms": ("20ms", 20),
        "max_deliveries": ("3", 3),
        "dead_letter": ("jobs.dead", "jobs.dead"),
        "leases_durable": ("true", True),
    }
    assert tuple(typed) == NAMES == tuple(setting_defaults())
    settings = [f"{name}={text}" for name, (text, _) in typed.items()]
    made = topics("create", "jobs", *settings, "--json", "--dir", tmp_path / "data")
    assert made.code == 0
    assert made.json["config"] == {name: value for name, (_, value) in typed.items()}


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("ttl_ms", "not like name=value"),
        ("tll_ms=5", "did you mean ttl_ms?"),
        ("zzz=5", "known: auto_create"),
        ("ttl_ms=soon", "250ms, 30s"),
        ("cap_bytes=1X", "64MiB"),
        ("cap_records=1.5", "a whole number"),
        ("durable=yes", "true or false"),
        ("discard=new", "one of old, reject"),
    ],
)
def test_a_mistyped_setting_is_explained(setting: str, hint: str, tmp_path: Path) -> None:
    refused = topics("create", "jobs", setting, "--dir", tmp_path / "data")
    assert refused.code == 2
    assert hint in " ".join(refused.err.split())
    assert not (tmp_path / "data").exists()


def test_a_start_in_time_is_a_date_or_how_long_ago(tmp_path: Path) -> None:
    where = ("--dir", tmp_path / "data")
    topics("produce", "orders", *where, stdin="one\n")
    assert len(topics("read", "orders", "--since", "1h", *where).out.splitlines()) == 1
    assert topics("read", "orders", "--since", "2099-01-01T00:00:00", *where).out == ""
    assert topics("read", "orders", "--since", int(time.time() * 1000) + 60_000, *where).out == ""
    refused = topics("read", "orders", "--since", "tomorrow", *where)
    assert (refused.code, "2026-01-31T12:00:00Z" in refused.err) == (2, True)


TOO_LARGE = 1 << 64


@pytest.mark.parametrize("where", [("--dir", "data"), ("--url", "http://127.0.0.1:1")])
@pytest.mark.parametrize(
    "command",
    [
        ("read", "t", "--after", TOO_LARGE),
        ("read", "t", "--since", TOO_LARGE),
        ("delete", "t", "--before", TOO_LARGE, "--yes"),
        ("cursor", "set", "t", "c", TOO_LARGE),
        ("explain", f"t#{TOO_LARGE}"),
        ("queue", "ack", "t", TOO_LARGE),
        ("queue", "nack", "t", f"{TOO_LARGE}@lease_1"),
        ("queue", "nack", "t", 1, "--delay", f"{TOO_LARGE}ms"),
        ("queue", "claim", "t", "--lease", f"{TOO_LARGE}ms"),
    ],
)
def test_a_number_beyond_64_bits_is_refused_before_any_log_is_asked(
    command: tuple[object, ...], where: tuple[str, str]
) -> None:
    answer = topics(*command, *where)
    assert answer.code == USAGE
    assert str(TOO_LARGE) in answer.err
    assert str(TOO_LARGE - 1) in answer.err, "it says how far numbers go"


def test_a_dump_begins_at_no_seq_beyond_64_bits_either(tmp_path: Path) -> None:
    answer = topics("dump", tmp_path, "t", "--after", TOO_LARGE)
    assert answer.code == USAGE
    assert str(TOO_LARGE - 1) in answer.err


def test_today_and_yesterday_are_days_of_utc(tmp_path: Path) -> None:
    where = ("--dir", tmp_path)
    topics("produce", "t", "-m", "x", *where)
    for day in ("today", "yesterday"):
        shown = topics("read", "t", "--since", day, *where)
        assert (shown.code, '"x"' in shown.out) == (0, True)
    refused = topics("read", "t", "--since", "tomorrow", *where)
    assert (refused.code, "today or yesterday" in " ".join(refused.err.split())) == (2, True)

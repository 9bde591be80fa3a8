"""Options of a read: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spark.source_rows import batch, stream

from topics.spark.errors import InvalidOption
from topics.spark.source.options import READ_OPTIONS, duration_ms, moment_ms, parse, size_bytes

URL = {"url": "http://127.0.0.1:1", "subscribe": "orders"}
NOW = 1_790_000_000_000


def refused(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(InvalidOption) as raised:
        parse(options, streaming=streaming)
    return str(raised.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("subscrib", "subscribe"),
        ("maxrecordspertriger", "maxRecordsPerTrigger"),
        ("STARTINGOFFSET", "startingOffsets"),
        ("topic", "subscribe"),
        ("failOnDataLoss", "onLoss"),
        ("maxOffsetsPerTrigger", "maxRecordsPerTrigger"),
        ("include_deleted", "includeDeleted"),
    ],
)
def test_an_unknown_option_names_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert f"no option '{typed}'; did you mean {meant}?" in refused(URL | {typed: "1"})


def test_an_option_like_no_other_is_answered_with_the_list() -> None:
    said = refused(URL | {"zzzzzz": "1"})
    assert all(name in said for name in READ_OPTIONS)


def test_what_spark_adds_itself_is_let_through() -> None:
    parse(URL | {"checkpointlocation": "/tmp/x", "queryname": "q"}, streaming=True)


def test_options_may_come_in_any_case() -> None:
    found = parse(URL | {"maxrecordspertrigger": "7", "ONLOSS": "Skip"}, streaming=True)
    assert (found.limits.max_records, found.on_loss) == (7, "skip")


def test_a_topic_in_load_is_answered_with_subscribe(tmp_path: Path) -> None:
    said = refused({"path": "orders", "url": "http://127.0.0.1:1"} | URL)
    assert "use subscribe: .option('subscribe', 'orders').load()" in said
    (tmp_path / "FORMAT").touch()
    assert "not both" in refused(URL | {"path": str(tmp_path)})


def test_a_path_may_be_a_uri_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").touch()
    for spelled in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        found = parse({"path": spelled, "subscribe": "orders"}, streaming=False)
        assert found.target.path == str(tmp_path)


def test_a_cursor_needs_a_server(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").touch()
    options = {"path": str(tmp_path), "subscribe": "orders", "cursor": "etl"}
    assert "kept by a server" in refused(options, streaming=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"subscribe": " , "}, {"subscribe": "a", "subscribePattern": "b"}],
)
def test_topics_are_named_or_matched_and_never_both(options: dict[str, str]) -> None:
    assert "say which topics" in refused({"url": "http://127.0.0.1:1"} | options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "oldest"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"orders": 0}'),
        ("startingOffsets", '{"orders": true}'),
        ("startingOffsets", '{"orders": 9223372036854775808}'),
        ("endingOffsets", '{"payments": 3}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-10 moons"),
        ("onLoss", "panic"),
        ("includeDeleted", "yes"),
        ("minPartitions", "0"),
        ("batchRows", "1.5"),
        ("retrySeconds", "-1"),
        ("url", "ftp://127.0.0.1:4000"),
        ("subscribePattern", "("),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_would(option: str, value: str) -> None:
    options = {option: value} if option == "subscribePattern" else URL | {option: value}
    assert refused({"url": "http://127.0.0.1:1"} | options)


def test_what_belongs_to_streams_is_refused_for_a_batch_and_the_other_way_round() -> None:
    assert "only a stream" in refused(URL | {"maxRecordsPerTrigger": "5"})
    assert "only a stream" in refused(URL | {"cursor": "etl"})
    assert "a stream has no end" in refused(URL | {"endingOffsets": "latest"}, streaming=True)
    assert "set both" in refused(URL | {"maxTriggerDelay": "1m"}, streaming=True)
    both = {"minRecordsPerTrigger": "9", "maxRecordsPerTrigger": "5"}
    assert "above" in refused(URL | both, streaming=True)
    two = {"startingOffsets": "latest", "startingTimestamp": "5"}
    assert "not both" in refused(URL | two)


def test_the_default_target_is_that_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://10.0.0.1:4000")
    monkeypatch.setenv("TOPICS_TOKEN", "key")
    target = parse({"subscribe": "orders"}, streaming=False).target
    assert (target.url, target.token) == ("http://10.0.0.1:4000", "key")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1790000000123", 1_790_000_000_123),
        ("2026-01-31T08:00:00Z", 1_769_846_400_000),
        ("2026-01-31T08:00:00", 1_769_846_400_000),
        ("2026-01-31T10:00:00+02:00", 1_769_846_400_000),
        ("-10 minutes", NOW - 600_000),
        ("-1.5h", NOW - 5_400_000),
        ("now", NOW),
    ],
)
def test_times_are_numbers_dates_or_so_long_ago(text: str, moment: int) -> None:
    assert moment_ms("startingTimestamp", text, now_ms=NOW) == moment


def test_durations_and_sizes_have_units() -> None:
    assert duration_ms("x", "15 minutes") == duration_ms("x", "15m") == 900_000
    assert duration_ms("x", "500ms") == 500
    assert size_bytes("x", "64m") == size_bytes("x", "64 MiB") == 64 << 20
    assert size_bytes("x", "100") == 100
    for text in ("", "0", "-5", "5 parsecs"):
        with pytest.raises(InvalidOption):
            size_bytes("x", text)


# Schema


def test_a_schema_without_kind_must_say_what_becomes_of_losses() -> None:
    with pytest.raises(InvalidOption, match="a lost run would pass for a record"):
        batch(URL, "seq bigint, ts timestamp")
    batch(URL | {"onLoss": "skip"}, "seq bigint, ts timestamp")
    batch(URL | {"onLoss": "fail"}, "seq bigint, ts timestamp")
    with pytest.raises(InvalidOption, match="a deleted run would pass for a record"):
        batch(URL | {"onLoss": "skip", "includeDeleted": "true"}, "seq bigint")
    stream(URL, "seq bigint NOT NULL, kind string")


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("seq int, kind string", "seq is of type bigint, not int"),
        ("kinds string", "no column 'kinds'; did you mean kind?"),
        ("amount double, kind string", "read them with from_json"),
        ("kind string, kind string", "twice"),
        ("kind string, tag string NOT NULL", "tag may be null"),
    ],
)
def test_a_wrong_schema_says_what_is_wrong(ddl: str, said: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        batch(URL, ddl)
    assert said in str(raised.value)


def test_every_option_is_on_the_page_about_options() -> None:
    page = Path(__file__).parents[3] / "docs" / "spark" / "options.md"
    assert [name for name in READ_OPTIONS if f"`{name}`" not in page.read_text()] == []

"""Options and columns of a write: what is taken, and what is refused with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from topics.spark.errors import InvalidOption
from topics.spark.sink.options import WRITE_OPTIONS, SinkOptions, check_columns, parse

URL = {"url": "http://127.0.0.1:1"}


def asked(streaming: bool = False, **options: str) -> SinkOptions:
    return parse(
        URL | {name.lower(): value for name, value in options.items()}, streaming=streaming
    )


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


TEXT, NUMBER, WHOLE = StringType(), IntegerType(), LongType()
A_STRUCT = columns(a=NUMBER)


# Options


def test_a_write_is_json_without_a_transaction_unless_told_otherwise() -> None:
    options = asked(topic="orders", token="secret")
    assert (options.topic, options.target.token, options.as_text, options.app) == (
        "orders",
        "secret",
        False,
        None,
    )
    assert "secret" not in repr(options)
    assert asked(dataFormat="TEXT").as_text


def test_the_default_target_is_that_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://elsewhere:4000")
    monkeypatch.setenv("TOPICS_TOKEN", "key")
    options = parse({}, streaming=True)
    assert (options.target.url, options.target.token) == ("http://elsewhere:4000", "key")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topics": "orders"}, r"did you mean topic\?"),
        ({"datformat": "text"}, r"did you mean dataFormat\?"),
        ({"txnappid": "a"}, "txnAppId and txnVersion together"),
        ({"txnversion": "1"}, "txnAppId and txnVersion together"),
        ({"txnappid": "a", "txnversion": "one"}, "whole number"),
        ({"txnappid": "a", "txnversion": "-1"}, "whole number"),
        ({"txnappid": "a", "txnversion": str(2**63)}, "whole number"),
        ({"dataformat": "avro"}, "dataFormat is json or text"),
        ({"path": "orders"}, r"use \.option\('topic', 'orders'\)"),
        ({"topic": ".bad"}, "the option topic"),
        ({"url": "nowhere"}, "like http://host:4000"),
        ({"retryseconds": "soon"}, "a number of seconds"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        parse(URL | options, streaming=False)


def test_a_stream_is_known_by_its_checkpoint_alone() -> None:
    with pytest.raises(InvalidOption, match="known by its checkpoint"):
        asked(streaming=True, txnAppId="a", txnVersion="1")
    asked(streaming=True, checkpointLocation="/somewhere", queryName="q")


def test_every_option_is_on_the_page_about_options() -> None:
    page = Path(__file__).parents[3] / "docs" / "spark" / "options.md"
    of_the_sink = page.read_text().partition("## Options of the sink")[2]
    assert [name for name in WRITE_OPTIONS if f"`{name}`" not in of_the_sink] == []


# Columns


@pytest.mark.parametrize(
    "schema",
    [
        columns(data=TEXT),
        columns(meta=MapType(TEXT, NUMBER), tag=TEXT, data=A_STRUCT, node=TEXT, topic=TEXT),
        columns(data=ArrayType(MapType(NUMBER, TimestampType()))),
        columns(data=DecimalType(38, 10), meta=columns(a=BinaryType())),
        columns(data=NullType()),
    ],
)
def test_columns_that_can_be_written(schema: StructType) -> None:
    check_columns(schema, asked(topic="t"))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (columns(dta=TEXT), r"did you mean data\?"),
        (columns(data=TEXT, seq=WHOLE), "rows whose kind is data"),
        (columns(data=TEXT, customer=TEXT), r"Put it into data: struct"),
        (columns(tag=TEXT), "a column named data is needed"),
        (columns(data=TEXT, tag=NUMBER), "tag is a string, not int"),
        (columns(data=TEXT, topic=BinaryType()), "topic is a string, not binary"),
        (columns(data=DayTimeIntervalType()), "no form in JSON: use a cast"),
        (columns(data=columns(a=ArrayType(VariantType()))), "holds variant, .*: use to_json"),
        (columns(data=MapType(A_STRUCT, NUMBER)), "has no form in JSON"),
        (columns(data=TEXT, meta=YearMonthIntervalType()), "column meta .*no form in JSON"),
    ],
)
def test_columns_that_cannot_be_written(schema: StructType, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        check_columns(schema, asked(topic="t"))


def test_every_row_needs_a_topic() -> None:
    with pytest.raises(InvalidOption, match="set the option topic, or give a column topic"):
        check_columns(columns(data=TEXT), asked())
    check_columns(columns(data=TEXT, topic=TEXT), asked())


def test_text_needs_strings() -> None:
    with pytest.raises(InvalidOption, match="dataFormat=text stores strings, and data is int"):
        check_columns(columns(data=NUMBER), asked(topic="t", dataFormat="text"))

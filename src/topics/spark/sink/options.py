"""What a writer was asked for: options as text become one checked value, and columns are checked.

    data    the payload, required: JSON text in a string, or a value of any type that JSON can hold
    topic   where the row goes, if not everything goes to the option `topic`
    tag     matched by deletes and filters
    node    the origin of the record
    meta    more JSON beside the payload, as text or as a value

Any other column is refused rather than left out: a column that is silently not stored is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructType,
    UserDefinedType,
    VariantType,
)

from topics.client.targets import Target
from topics.core.config import check_topic_name
from topics.errors import TopicsError
from topics.spark.errors import InvalidOption, nearest
from topics.spark.source.options import DEFAULT_RETRY_S, Given, check_names
from topics.spark.source.schema import COLUMNS as READ_COLUMNS

WRITE_OPTIONS: Final = (
    "url",
    "token",
    "caFile",
    "topic",
    "dataFormat",
    "txnAppId",
    "txnVersion",
    "appPrefix",
    "retrySeconds",
)


@dataclass(frozen=True)
class SinkOptions:
    """A write, checked. `app` and `version` are set together, and only for a batch write.

    `app_prefix` begins the name of every other app: a key that is limited to prefixes may only use
    apps that begin with one of them.
    """

    target: Target
    topic: str | None
    as_text: bool
    app: str | None
    version: int
    app_prefix: str
    retry_s: float


def parse(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write, or an error that says what is wrong with them."""
    check_names(options, WRITE_OPTIONS, what='writing to format("topics")')
    given = Given(options)
    app, version = _transaction(given, streaming=streaming)
    data_format = (given.get("dataFormat", str) or "json").lower()
    if data_format not in ("json", "text"):
        raise InvalidOption(f"dataFormat is json or text; got {data_format!r}")
    return SinkOptions(
        target=_target(given),
        topic=_topic(given),
        as_text=data_format == "text",
        app=app,
        version=version,
        app_prefix=given.get("appPrefix", str) or "",
        retry_s=given.seconds("retrySeconds", DEFAULT_RETRY_S),
    )


def _target(given: Given) -> Target:
    path = given.get("path", str)
    if path is not None:
        raise InvalidOption(
            "a write goes through a server (option url), not to a path. If "
            f"{path!r} is a topic, use .option('topic', {path!r})"
        )
    target = given.target()
    if target.url is None:
        raise InvalidOption(
            f"a write goes through a server, and {target.source} is a data directory: set the "
            "option url"
        )
    return target


def _topic(given: Given) -> str | None:
    topic = given.get("topic", str)
    if topic is not None:
        try:
            check_topic_name(topic)
        except TopicsError as error:
            raise InvalidOption(f"the option topic: {error}") from error
    return topic


def _transaction(given: Given, *, streaming: bool) -> tuple[str | None, int]:
    app, version = given.get("txnAppId", str), given.get("txnVersion", str)
    if app is None and version is None:
        return None, 0
    if streaming:
        raise InvalidOption(
            "txnAppId and txnVersion are for batch writes; a stream is known by its checkpoint"
        )
    if app is None or version is None:
        raise InvalidOption(
            "set txnAppId and txnVersion together: one names the writer, the other its writes"
        )
    if not version.strip().isdecimal() or int(version) >= 1 << 63:
        raise InvalidOption(f"txnVersion takes a whole number from 0 on; got {version!r}")
    return app, int(version)


COLUMNS: Final = ("data", "topic", "tag", "node", "meta")
_STRINGS: Final = ("topic", "tag", "node")


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuse what could not be written, before any task runs."""
    names: Sequence[str] = schema.names
    for name in names:
        if name not in COLUMNS:
            raise InvalidOption(_unknown(name, names))
    if "data" not in names:
        raise InvalidOption(
            "a column named data is needed: to_json(struct(*)) AS data, or struct(*) AS data, "
            "makes records of whole rows"
        )
    if "topic" not in names and options.topic is None:
        raise InvalidOption("say where to write: set the option topic, or give a column topic")
    for field in schema.fields:
        _check_type(field.name, field.dataType, as_text=options.as_text)


def _unknown(name: str, names: Sequence[str]) -> str:
    near = nearest(name, [known for known in COLUMNS if known not in names])
    if name in READ_COLUMNS:
        hint = (
            f"the log gives every record its own; select {', '.join(COLUMNS)} of the rows whose "
            "kind is data"
        )
    elif near:
        hint = f"did you mean {near}?"
    else:
        hint = f"there are: {', '.join(COLUMNS)}. Put it into data: struct(...) AS data"
    return f"the column {name!r} has no place in a record; {hint}"


def _check_type(name: str, kind: DataType, *, as_text: bool) -> None:
    is_string = isinstance(kind, StringType)
    if name in _STRINGS and not is_string:
        raise InvalidOption(
            f"the column {name} is a string, not {kind.simpleString()}: cast it to one"
        )
    if name == "data" and as_text and not is_string:
        raise InvalidOption(
            f"dataFormat=text stores strings, and data is {kind.simpleString()}: leave dataFormat "
            "out to store it as JSON, or cast it to a string"
        )
    bad = _without_json(kind)
    if bad is not None:
        remedy = "to_json(...)" if isinstance(bad, VariantType) else "a cast to string"
        raise InvalidOption(
            f"the column {name} holds {bad.simpleString()}, which has no form in JSON: use {remedy}"
        )


def _without_json(kind: DataType) -> DataType | None:
    """The first type in here that cannot be shown as JSON."""
    if isinstance(kind, UserDefinedType):
        return _without_json(kind.sqlType())
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        if isinstance(kind.keyType, StructType | ArrayType):
            return kind
        inner = [kind.valueType]
    else:
        is_bad = isinstance(kind, AnsiIntervalType | CalendarIntervalType | VariantType)
        return kind if is_bad else None
    return next((bad for bad in map(_without_json, inner) if bad is not None), None)

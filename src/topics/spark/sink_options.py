"""What a writer was asked for: options as text become one checked value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topics.client.targets import Target
from topics.core.config import check_topic_name
from topics.errors import TopicsError
from topics.spark.errors import InvalidOption
from topics.spark.options import DEFAULT_RETRY_S, Given, check_names

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

"""What a reader was asked for: options as text become one checked value.

Spark hands options over in lower case; messages use the documented spelling. An option that does
not exist is refused, with the one that was probably meant: a misspelt limit that is silently
ignored is found in production.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from topics.client.targets import Target, checked_ca_file, resolve
from topics.errors import TopicsError
from topics.spark.errors import InvalidOption, nearest

T = TypeVar("T")
Start = Literal["earliest", "latest"] | Mapping[str, "int | str"]
OnLoss = Literal["rows", "fail", "skip"]

READ_OPTIONS: Final = (
    "url",
    "token",
    "caFile",
    "path",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "match",
    "node",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minRecordsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "onLoss",
    "includeDeleted",
    "cursor",
    "batchRows",
    "retrySeconds",
)
SPARK_OPTIONS: Final = ("checkpointLocation", "queryName", "path")
"""What Spark itself adds."""
_ALSO_KNOWN_AS: Final = {
    "topic": "subscribe",
    "topics": "subscribe",
    "assign": "subscribe",
    "failondataloss": "onLoss",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "minoffsetspertrigger": "minRecordsPerTrigger",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "kafka.bootstrap.servers": "url",
    "limit": "maxRecordsPerTrigger",
}
"""Words from elsewhere that are too far from ours to be recognised by their letters."""

DEFAULT_DELAY: Final = "15 minutes"
DEFAULT_RETRY_S: Final = 60.0
FIRST_SEQ: Final = 1


@dataclass(frozen=True)
class Filter:
    """Which records the log is to leave out itself."""

    match: str | None = None
    nodes: tuple[str, ...] = ()


NO_FILTER: Final = Filter()


@dataclass(frozen=True)
class TriggerLimits:
    """How much one trigger takes."""

    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None
    max_delay_ms: int = 0


@dataclass(frozen=True)
class ReadOptions:
    """A read, checked. Times are resolved already: `-10 minutes` means before the query began."""

    target: Target
    cold_dir: str | None
    topics: tuple[str, ...]
    pattern: str | None
    starting: Start | None
    ending: Start | None
    starting_ms: int | None
    ending_ms: int | None
    filter: Filter
    limits: TriggerLimits
    min_partitions: int | None
    max_records_per_partition: int | None
    on_loss: OnLoss
    include_deleted: bool
    cursor: str | None
    batch_rows: int
    retry_s: float

    @property
    def start_moves(self) -> bool:
        """Whether the start of a stream is another one when it is looked up later."""
        if self.starting_ms is not None:
            return True
        start = self.starting or "latest"
        named = {start} if isinstance(start, str) else {"earliest", *start.values()}
        return "latest" in named or ("earliest" in named and self.on_loss == "fail")

    def wants(self, topic: str) -> bool:
        """Whether the topic is one of those subscribed to."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def check_names(given: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Refuse an option that is not among the `known`, naming the one that was probably meant."""
    allowed = (*known, *SPARK_OPTIONS)
    for name in given:
        if name.lower() in map(str.lower, allowed):
            continue
        alias = _ALSO_KNOWN_AS.get(name.lower())
        meant = alias if alias in allowed else nearest(name, allowed)
        hint = f"did you mean {meant}?" if meant else f"there are: {', '.join(sorted(known))}"
        raise InvalidOption(f"{what} has no option {name!r}; {hint}")


def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a read, or an error that says what is wrong with them."""
    check_names(options, READ_OPTIONS, what='format("topics")')
    given = Given(options)
    if streaming:
        _refuse(given, ("endingOffsets", "endingTimestamp"), "a stream has no end; read a batch")
    else:
        triggers = ("maxRecordsPerTrigger", "maxBytesPerTrigger", "minRecordsPerTrigger")
        _refuse(given, (*triggers, "maxTriggerDelay"), "only a stream has triggers")
        _refuse(given, ("cursor",), "only a stream has a position to report")
    target = _target(given)
    if target.path is not None and "cursor" in given:
        raise InvalidOption("a cursor is kept by a server: read through url to report to one")
    topics, pattern = _subscription(given)
    now_ms = time.time_ns() // 1_000_000
    starting, starting_ms = _edge(given, "starting", now_ms, topics)
    ending, ending_ms = _edge(given, "ending", now_ms, topics)
    on_loss = given.get("onLoss", str.lower) or "rows"
    if on_loss not in ("rows", "fail", "skip"):
        raise InvalidOption(f"onLoss is rows, fail or skip; got {on_loss!r}")
    return ReadOptions(
        target=target,
        cold_dir=os.environ.get("TOPICS_COLD_DIR") or None,
        topics=topics,
        pattern=pattern,
        starting=starting,
        ending=ending,
        starting_ms=starting_ms,
        ending_ms=ending_ms,
        filter=Filter(given.get("match", str), _names(given.get("node", str) or "")),
        limits=_limits(given),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        on_loss=on_loss,  # type: ignore[arg-type]  # checked above
        include_deleted=given.flag("includeDeleted"),
        cursor=given.get("cursor", str),
        batch_rows=given.count("batchRows") or 10_000,
        retry_s=given.seconds("retrySeconds", DEFAULT_RETRY_S),
    )


class Given:
    """Options by their documented names, whatever case they came in."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def get(self, name: str, convert: Callable[[str], T]) -> T | None:
        text = self._values.get(name.lower())
        return None if text is None else convert(text)

    def count(self, name: str) -> int | None:
        text = self._values.get(name.lower())
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) == 0:
            raise InvalidOption(f"{name} takes a whole number above 0; got {text!r}")
        return int(text)

    def flag(self, name: str) -> bool:
        text = self._values.get(name.lower(), "false").lower()
        if text not in ("true", "false"):
            raise InvalidOption(f"{name} is true or false; got {text!r}")
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        text = self._values.get(name.lower())
        try:
            seconds = default if text is None else float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e9:
            raise InvalidOption(f"{name} takes a number of seconds; got {text!r}")
        return seconds

    def target(self, path: str | None = None) -> Target:
        """The log that `url`, `token` and `caFile` name, or the data directory `path`."""
        ca_file = self.get("caFile", str)
        try:
            target = resolve(url=self.get("url", str), dir=path, token=self.get("token", str))
            if ca_file is None:
                return target
            return msgspec.structs.replace(target, ca_file=checked_ca_file(ca_file))
        except TopicsError as error:
            raise InvalidOption(str(error)) from error


def options_of(target: Target) -> dict[str, str]:
    """The options that name a log, as `Given.target` reads them."""
    named = {
        "path": target.path,
        "url": target.url,
        "token": target.token,
        "caFile": target.ca_file,
    }
    return {name: text for name, text in named.items() if text is not None}


def _refuse(given: Given, names: Iterable[str], why: str) -> None:
    for name in names:
        if name in given:
            raise InvalidOption(f"{name} does not go with this read: {why}")


def _target(given: Given) -> Target:
    path, url = given.get("path", _local), given.get("url", str)
    if path is not None and not os.path.exists(os.path.join(path, "FORMAT")):
        raise InvalidOption(
            f"path names a data directory, and {path!r} is none. If it is a topic, leave load() "
            f"empty and use subscribe: .option('subscribe', {path!r}).load()"
        )
    if path is not None and url is not None:
        raise InvalidOption("read from a server (url) or from a data directory (path), not both")
    return given.target(path)


def _local(path: str) -> str:
    """A path, also where Spark has made a URI of it."""
    return unquote(urlsplit(path).path) if path.startswith("file:/") else path


def _subscription(given: Given) -> tuple[tuple[str, ...], str | None]:
    topics = _names(given.get("subscribe", str) or "")
    pattern = given.get("subscribePattern", str)
    if bool(topics) == (pattern is not None):
        raise InvalidOption(
            "say which topics to read: subscribe takes names separated by commas, "
            "subscribePattern a regular expression; one of the two"
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidOption(f"subscribePattern is no regular expression: {error}") from error
    return topics, pattern


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _edge(
    given: Given, edge: str, now_ms: int, topics: tuple[str, ...]
) -> tuple[Start | None, int | None]:
    by_offset, by_time = f"{edge}Offsets", f"{edge}Timestamp"
    if by_offset in given and by_time in given:
        raise InvalidOption(f"give {by_offset} or {by_time}, not both")
    text = given.get(by_time, str)
    moment = None if text is None else moment_ms(by_time, text, now_ms=now_ms)
    offsets = given.get(by_offset, str)
    return (None if offsets is None else _offsets(by_offset, offsets, topics)), moment


def _offsets(option: str, text: str, topics: tuple[str, ...]) -> Start:
    plain = text.strip().lower()
    if plain == "earliest":
        return "earliest"
    if plain == "latest":
        return "latest"
    wanted = f'{option} is earliest, latest or JSON such as {{"orders": 100}}'
    try:
        offsets = json.loads(text)
    except ValueError:
        raise InvalidOption(f"{wanted}; got {text!r}") from None
    if not isinstance(offsets, dict):
        raise InvalidOption(f"{wanted}; got {text!r}")
    for topic, seq in offsets.items():
        is_seq = isinstance(seq, int) and not isinstance(seq, bool) and FIRST_SEQ <= seq < 1 << 63
        if not is_seq and seq not in ("earliest", "latest"):
            raise InvalidOption(
                f"{option}: the position in {topic!r} is the next seq to read, from 1 on, or "
                f"earliest or latest; got {seq!r}"
            )
        if topics and topic not in topics:
            raise InvalidOption(f"{option} names {topic!r}, which subscribe does not")
    return offsets


def _limits(given: Given) -> TriggerLimits:
    if "maxTriggerDelay" in given and "minRecordsPerTrigger" not in given:
        raise InvalidOption("maxTriggerDelay bounds the wait for minRecordsPerTrigger; set both")
    max_records, min_records = (
        given.count("maxRecordsPerTrigger"),
        given.count("minRecordsPerTrigger"),
    )
    if max_records is not None and min_records is not None and min_records > max_records:
        raise InvalidOption("minRecordsPerTrigger is above maxRecordsPerTrigger")
    return TriggerLimits(
        max_records=max_records,
        max_bytes=given.get("maxBytesPerTrigger", lambda s: size_bytes("maxBytesPerTrigger", s)),
        min_records=min_records,
        max_delay_ms=duration_ms(
            "maxTriggerDelay", given.get("maxTriggerDelay", str) or DEFAULT_DELAY
        ),
    )


_UNITS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def moment_ms(option: str, text: str, *, now_ms: int) -> int:
    """Milliseconds since the epoch: as a number, in ISO 8601, or as `-10 minutes` from now."""
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        return int(text)
    if text.startswith("-"):
        return max(0, now_ms - duration_ms(option, text[1:].strip()))
    if text == "now":
        return now_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(
            f"{option} takes milliseconds since 1970, a time like 2026-01-31T08:00:00Z, or one "
            f"like '-10 minutes'; got {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def duration_ms(option: str, text: str) -> int:
    """A length of time such as `15m`, `30 seconds` or `500ms`."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found[2] if found else ""
    scale = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if found is None or scale is None:
        raise InvalidOption(f"{option} takes a time such as '10 minutes' or '30s'; got {text!r}")
    return int(float(found[1]) * scale)


def size_bytes(option: str, text: str) -> int:
    """A number of bytes, or one such as `64m`."""
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise InvalidOption(f"{option} takes a number of bytes, or one such as 64m; got {text!r}")
    return int(found[1]) * _SIZES[found[2]]

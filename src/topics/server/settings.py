"""Every setting of the server, once: name, kind of value, default, meaning.

Parsing, `topics serve --help` and the table in docs/configuration.md all come from `SETTINGS`. A
setting called `disk_sync_ms` is the variable `TOPICS_DISK_SYNC_MS` and the flag `--disk-sync-ms`.
Ranges and defaults of engine settings are those of `EngineSettings`; they are not repeated here.

An empty text is never a value: what the operator meant by `TOPICS_PORT=` cannot be known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from topics.engine.settings import RANGES, EngineSettings
from topics.wire.origins import parse_authority, parse_origin

Value: TypeAlias = str | int | bool | None

_DIGITS = re.compile(r"[0-9]{1,1000}")
_UNLIMITED_RANGE: Final = (0, 1 << 62)


class BadValue(ValueError):
    """The text is not a value of this kind."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer inside a range; anything else is refused."""

    lowest: int
    highest: int

    @property
    def allowed(self) -> str:
        highest = "2^62" if self.highest == 1 << 62 else self.highest
        return f"an integer from {self.lowest} to {highest}"

    def parse(self, text: str) -> int:
        number = _whole(text)
        if not self.lowest <= number <= self.highest:
            raise BadValue
        return number


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on requests: 0 stands for the default, and too much for the bound."""

    default: int
    bound: int

    @property
    def allowed(self) -> str:
        return f"an integer; 0 means {self.default}, the most is {self.bound}"

    def parse(self, text: str) -> int:
        return min(_whole(text) or self.default, self.bound)

    def is_cut(self, text: str) -> bool:
        """Whether the value that counts is less than was asked for."""
        return _whole(text) > self.bound


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    allowed: str = "1, true, 0 or false"

    def parse(self, text: str) -> bool:
        try:
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
        except KeyError as error:
            raise BadValue from error


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but an empty one, unless that has a meaning of its own."""

    allowed: str
    may_be_empty: bool = False

    def parse(self, text: str) -> str:
        if not text and not self.may_be_empty:
            raise BadValue
        return text


@dataclass(frozen=True, slots=True)
class Word:
    """One certain word."""

    word: str

    @property
    def allowed(self) -> str:
        return f"{self.word!r}, or not set at all"

    def parse(self, text: str) -> str:
        if text != self.word:
            raise BadValue
        return text


@dataclass(frozen=True, slots=True)
class Hosts:
    """Host names, a list."""

    allowed: str = "host names joined by ',', without scheme, port or path"

    def parse(self, text: str) -> str:
        found = [parse_authority(entry) for entry in text.split(",")]
        if any(host is None or host.port is not None for host in found):
            raise BadValue
        return ",".join(host.host for host in found if host is not None)


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins of web pages, a list."""

    allowed: str = "origins such as https://app.example.com joined by ',', without path"

    def parse(self, text: str) -> str:
        found = [parse_origin(entry) for entry in text.split(",")]
        if None in found:
            raise BadValue
        return ",".join(origin.text for origin in found if origin is not None)


Kind: TypeAlias = Whole | Limit | Switch | Text | Word | Hosts | Origins


def _whole(text: str) -> int:
    # int() would also take spaces, signs, underscores and the digits of every script.
    if not _DIGITS.fullmatch(text):
        raise BadValue
    return int(text)


@dataclass(frozen=True, slots=True)
class ServerSetting:
    """One setting. `default` None means unset."""

    name: str
    kind: Kind
    default: Value
    meaning: str
    is_engine: bool = False
    shown_default: str | None = None

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"TOPICS_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """Its flag of `topics serve`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Whether the flag stands without a value."""
        return isinstance(self.kind, Switch)

    @property
    def is_for_tests(self) -> bool:
        """Whether only tests use it, so that `serve --help` leaves it out."""
        return self.name.startswith("test_")

    @property
    def default_text(self) -> str:
        """The default for people."""
        if self.shown_default is not None:
            return self.shown_default
        if self.default is None:
            return "unset"
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return str(self.default)

    @property
    def help(self) -> str:
        """The help text of the flag."""
        return f"{self.meaning} [{self.variable}; default: {self.default_text}]"


_ENGINE_DEFAULTS: Final = msgspec.structs.asdict(EngineSettings())


def _engine_number(name: str, meaning: str, *, shown_default: str | None = None) -> ServerSetting:
    default = _ENGINE_DEFAULTS[name]
    return ServerSetting(name, Whole(*RANGES[name]), default, meaning, True, shown_default)


def _engine_limit(name: str, meaning: str) -> ServerSetting:
    default = _ENGINE_DEFAULTS[name]
    return ServerSetting(name, Limit(default, RANGES[name][1]), default, meaning, is_engine=True)


def _cap(name: str, default: int, meaning: str) -> ServerSetting:
    return ServerSetting(name, Whole(*_UNLIMITED_RANGE), default, f"{meaning}; 0 = no limit")


def _limit(name: str, default: int, bound: int, meaning: str) -> ServerSetting:
    return ServerSetting(name, Limit(default, bound), default, meaning)


def _switch(name: str, meaning: str, *, is_engine: bool = False) -> ServerSetting:
    return ServerSetting(name, Switch(), default=False, meaning=meaning, is_engine=is_engine)


_PATH: Final = Text("a path")

SETTINGS: Final = (
    ServerSetting(
        "host",
        Text("a host name, an address, or host:port"),
        "127.0.0.1",
        "Host to bind; host:port sets the port as well, an IPv6 host then stands in brackets",
    ),
    ServerSetting("port", Whole(0, 65535), 4000, "Port to bind; 0 = any free one"),
    ServerSetting(
        "port_file", _PATH, None, "File to write the bound host:port to, before recovery"
    ),
    ServerSetting(
        "api_keys",
        Text("entries secret[:scopes[:prefixes]] joined by ','", may_be_empty=True),
        None,
        "API keys; better given as a variable, for other users can see flags",
    ),
    _switch("allow_insecure_no_auth", "Allow a public bind without API keys"),
    ServerSetting(
        "allowed_hosts",
        Hosts(),
        None,
        "Host names a server without keys answers to, besides localhost and IP addresses",
    ),
    ServerSetting(
        "cors_origins",
        Origins(),
        None,
        "Origins whose web pages may use the server, besides its own; unset = none",
    ),
    _switch("probe_auth", "Let health and readiness probes need a key too"),
    ServerSetting(
        "max_body_bytes",
        Whole(*_UNLIMITED_RANGE),
        64 << 20,
        "Largest request body; 0 refuses every body that is not empty",
    ),
    _cap("max_request_bytes", 512 << 20, "Bodies and messages in memory, of all requests"),
    ServerSetting("data_dir", _PATH, "./topics-data", "Directory of everything durable"),
    ServerSetting("cold_dir", _PATH, None, "Directory for old segments; unset = all stay", True),
    _engine_number(
        "wal_shards", "Log writers; 0 = the default", shown_default="one per CPU, at most 8"
    ),
    _engine_number("segment_max_events", "Seal a segment after this many records"),
    _engine_number("segment_max_bytes", "Seal a segment after this many bytes"),
    _engine_number("segment_max_age_ms", "Seal a segment after this time; 0 = never"),
    _engine_number("hot_retain_segments", "Newest sealed segments of a topic that stay hot"),
    _engine_number("hot_retain_bytes", "Bytes of a topic that stay hot, if less; 0 = any"),
    _engine_number("disk_sync_ms", "How long written log bytes may wait for their sync"),
    _engine_number("stop_checkpoint_ms", "How long a stop may spend on its last checkpoint"),
    ServerSetting(
        "wal_repair",
        Word("salvage"),
        None,
        "salvage: start on a damaged log and announce what is lost, instead of refusing",
        True,
    ),
    _switch("unsafe_no_dir_fsync", "Start although directories cannot be synced", is_engine=True),
    _engine_number("max_topics", "Topics; 0 = no limit"),
    _engine_number("max_routers", "Routers; 0 = no limit"),
    _cap("max_watch_sessions", 10_000, "Watch sessions"),
    _cap("max_sse_connections", 10_000, "Open streams: watch, work and WebSocket"),
    _cap("max_sse_connections_per_key", 1000, "Open streams of one key"),
    _cap("max_inflight_per_key", 1000, "Requests of one key at the same time"),
    _engine_number("max_total_bytes", "Size of all live records; 0 = no limit"),
    _engine_number("max_idempotency_keys", "Idempotency keys remembered per topic"),
    _engine_number("stage_ttl_ms", "How long a stage waits for its commit"),
    _engine_number(
        "stage_lease_ms", "How long the stages of a run are kept when nothing is heard of it"
    ),
    _engine_number(
        "max_stage_bytes",
        "Data and meta of the stages of one app; their files may take 1 MiB more, and all apps "
        "together four times as much; 0 = no limit",
    ),
    _engine_number("max_stages", "Stages that wait for their commit; 0 = no limit"),
    _engine_number(
        "max_stage_apps",
        "Staging apps remembered, each counted once more per KiB of its last answer; 0 = no limit",
    ),
    _engine_number("stage_app_ttl_ms", "How long an unused app's last commit is remembered"),
    ServerSetting("tls_cert", _PATH, None, "Certificate chain, PEM; with tls_key: TLS only"),
    ServerSetting("tls_key", _PATH, None, "Private key of the certificate, PEM"),
    ServerSetting(
        "access_log",
        Text("a path, or - for stdout"),
        None,
        "File for one JSON line per request; unset = none",
    ),
    ServerSetting(
        "test_min_heartbeat_ms",
        Whole(1, 1000),
        None,
        "For tests only: shortest heartbeat a stream may ask for, instead of 1000",
    ),
    _engine_limit("max_batch_records", "Records in one write"),
    _engine_limit("max_record_bytes", "Size of one record, data and meta"),
    _engine_limit("max_meta_bytes", "Size of meta"),
    _engine_limit("max_tag_bytes", "Size of a tag"),
    _engine_limit("max_node_bytes", "Size of a node"),
    _engine_limit("max_limit", "Records a read may ask for"),
    _limit("max_watch_topics", 256, 4096, "Topics in one watch"),
    _limit("max_claim", 1000, 10_000, "Jobs in one claim, and seqs in one answer to it"),
)
"""All settings, in the order people read them."""

SECTIONS: Final = {
    "Address": ("host", "port", "port_file", "tls_cert", "tls_key"),
    "Who may use it": (
        "api_keys",
        "allow_insecure_no_auth",
        "allowed_hosts",
        "cors_origins",
        "probe_auth",
    ),
    "Data": (
        "data_dir",
        "cold_dir",
        "wal_shards",
        "disk_sync_ms",
        "stop_checkpoint_ms",
        "segment_max_events",
        "segment_max_bytes",
        "segment_max_age_ms",
        "hot_retain_segments",
        "hot_retain_bytes",
        "wal_repair",
        "unsafe_no_dir_fsync",
    ),
    "Limits of the server": (
        "max_topics",
        "max_routers",
        "max_total_bytes",
        "max_idempotency_keys",
        "max_request_bytes",
        "max_watch_sessions",
        "max_sse_connections",
        "max_sse_connections_per_key",
        "max_inflight_per_key",
    ),
    "Staged writes": (
        "stage_ttl_ms",
        "stage_lease_ms",
        "max_stage_bytes",
        "max_stages",
        "max_stage_apps",
        "stage_app_ttl_ms",
    ),
    "Limits of a request": (
        "max_body_bytes",
        "max_batch_records",
        "max_record_bytes",
        "max_meta_bytes",
        "max_tag_bytes",
        "max_node_bytes",
        "max_limit",
        "max_watch_topics",
        "max_claim",
    ),
    "What it says": ("access_log",),
}
"""The settings as `topics serve --help` lists them; what is for tests only is in none."""

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


def markdown_table() -> str:
    """The table of all settings for the docs."""
    lines = ["| Variable | Flag | Default | Meaning | Allowed |", "|---|---|---|---|---|"]
    lines += [
        f"| `{s.variable}` | `{s.flag}` | {s.default_text} | {s.meaning} | {s.kind.allowed} |"
        for s in SETTINGS
    ]
    return "\n".join(lines) + "\n"

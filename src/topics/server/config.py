"""The configuration of a server: built once at start from variables and flags, or not at all.

`load` reads every setting of `SETTINGS`. A flag wins over its variable. A value that does not
parse, or settings that contradict each other, raise `InvalidSetting`: nothing has been bound or
opened by then, and nothing is guessed.

A server without keys obeys every client that reaches it. It is therefore kept to loopback addresses
unless the operator sets `allow_insecure_no_auth`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from topics.engine.settings import EngineSettings
from topics.errors import InvalidSetting
from topics.http.api.auth import Keyring
from topics.server.settings import BY_NAME, SETTINGS, BadValue, Limit, ServerSetting, Value

DEFAULT_MIN_HEARTBEAT_MS: Final = 1000

Flags: TypeAlias = Mapping[str, str | bool | None]
"""Flags by the name of their setting; None, like absence, means not given."""

Resolver: TypeAlias = Callable[[str], Sequence[str]]
"""Every address a host name stands for; empty when it cannot be resolved."""


class TlsFiles(NamedTuple):
    """Paths of PEM files."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything a server is told from outside. `warnings` are for the log, loudly, at start."""

    host: str
    port: int
    port_file: str | None
    tls: TlsFiles | None
    keyring: Keyring
    allowed_hosts: str | None
    cors_origins: str | None
    probe_auth: bool
    data_dir: str
    engine: EngineSettings
    max_body_bytes: int
    max_watch_sessions: int
    max_request_bytes: int
    max_sse_connections: int
    max_sse_connections_per_key: int
    max_inflight_per_key: int
    max_watch_topics: int
    max_claim: int
    min_heartbeat_ms: int
    access_log: str | None
    warnings: tuple[str, ...]


def resolve_host(host: str) -> list[str]:
    """The addresses the system would bind for this host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def load(
    environ: Mapping[str, str], flags: Flags | None = None, *, resolve: Resolver = resolve_host
) -> ServerConfig:
    """The configuration these variables and flags ask for; `InvalidSetting` if there is none."""
    given = _GivenSettings(environ, flags or {})
    host, port = _bind_address(given)
    keyring = Keyring(given.text("api_keys") or "", setting=given.label("api_keys"))
    values: dict[str, Any] = {
        s.name: given.value(s.name) for s in SETTINGS if s.name not in ("port", "api_keys")
    }
    engine = EngineSettings(**{s.name: values[s.name] for s in SETTINGS if s.is_engine})
    warnings = list(given.warnings)
    if not keyring.enabled:
        is_local = _is_loopback(resolve(host))
        if not is_local and not values["allow_insecure_no_auth"]:
            raise _public_without_keys(given, host)
        warnings.append(_no_keys_warning(host, is_local=is_local))
    return ServerConfig(
        host=host,
        port=port,
        port_file=values["port_file"],
        tls=_tls_files(given, values["tls_cert"], values["tls_key"]),
        keyring=keyring,
        allowed_hosts=values["allowed_hosts"],
        cors_origins=values["cors_origins"],
        probe_auth=values["probe_auth"],
        data_dir=values["data_dir"],
        engine=engine,
        max_body_bytes=values["max_body_bytes"],
        max_watch_sessions=values["max_watch_sessions"],
        max_request_bytes=values["max_request_bytes"],
        max_sse_connections=values["max_sse_connections"],
        max_sse_connections_per_key=values["max_sse_connections_per_key"],
        max_inflight_per_key=values["max_inflight_per_key"],
        max_watch_topics=values["max_watch_topics"],
        max_claim=values["max_claim"],
        min_heartbeat_ms=values["test_min_heartbeat_ms"] or DEFAULT_MIN_HEARTBEAT_MS,
        access_log=values["access_log"],
        warnings=tuple(warnings),
    )


class _GivenSettings:
    """What the operator said, setting by setting."""

    def __init__(self, environ: Mapping[str, str], flags: Flags) -> None:
        self.warnings: list[str] = []
        self._environ = environ
        self._flags = flags

    def text(self, name: str) -> str | None:
        """The words for a setting; None when there are none."""
        flag = self._flags.get(name)
        if flag is None:
            return self._environ.get(BY_NAME[name].variable)
        return flag if isinstance(flag, str) else str(flag).lower()

    def label(self, name: str) -> str:
        """What to call a setting: as the operator gave it, and always by its variable."""
        setting = BY_NAME[name]
        given = self._flags.get(name) is not None
        return f"{setting.flag} ({setting.variable})" if given else setting.variable

    def value(self, name: str) -> Value:
        """The value that counts."""
        setting = BY_NAME[name]
        text = self.text(name)
        if text is None:
            return setting.default
        try:
            value = setting.kind.parse(text)
        except BadValue as error:
            raise self.refusal(setting, repr(text)) from error
        if isinstance(setting.kind, Limit) and setting.kind.is_cut(text):
            self.warnings.append(
                f"{self.label(name)} is {text}, more than is possible; {value} is used"
            )
        return value

    def refusal(self, setting: ServerSetting, got: str) -> InvalidSetting:
        return InvalidSetting(self.label(setting.name), allowed=setting.kind.allowed, got=got)


# Where to bind


def _bind_address(given: _GivenSettings) -> tuple[str, int]:
    text = str(given.value("host"))
    host, port = _split_host(given, text)
    if port is None:
        number = given.value("port")
        assert isinstance(number, int)
        return host, number
    if given.text("port") is not None:
        given.warnings.append(
            f"{given.label('port')} is ignored: {given.label('host')} names a port already"
        )
    return host, port


def _split_host(given: _GivenSettings, text: str) -> tuple[str, int | None]:
    """Host, and the port if the text names one.

    A bare IPv6 address is a host, colons and all; beside a port it needs brackets, since the port
    could be part of the address.
    """
    if ":" not in text or _is_ipv6(text):
        return text, None
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, colon, port = text, "", ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        is_host = _is_ipv6(host)
    else:
        is_host = bool(host) and ":" not in host
    if not is_host:
        raise given.refusal(BY_NAME["host"], repr(text))
    if not colon:
        return host, None
    try:
        return host, int(BY_NAME["port"].kind.parse(port))
    except BadValue as error:
        raise given.refusal(BY_NAME["host"], f"{text!r}, whose port is no port") from error


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


# Keys and TLS


def _is_loopback(addresses: Sequence[str]) -> bool:
    """Whether every address is reachable from this machine alone; False if there is none."""
    return bool(addresses) and all(_is_loopback_address(address) for address in addresses)


def _is_loopback_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _public_without_keys(given: _GivenSettings, host: str) -> InvalidSetting:
    keys, override = BY_NAME["api_keys"], BY_NAME["allow_insecure_no_auth"]
    return InvalidSetting(
        given.label("host"),
        allowed=(
            f"a loopback address while {keys.variable} is not set, because everybody who reaches "
            f"the server could read and delete everything ({override.variable}=1 allows it)"
        ),
        got=repr(host),
    )


def _no_keys_warning(host: str, *, is_local: bool) -> str:
    who = "every process on this machine" if is_local else f"EVERYBODY who reaches {host}"
    return (
        f"NO API KEYS ARE SET: {who} can read, write and delete all topics; "
        f"set {BY_NAME['api_keys'].variable} to prevent that"
    )


def _tls_files(given: _GivenSettings, cert: str | None, key: str | None) -> TlsFiles | None:
    if cert is not None and key is not None:
        return TlsFiles(cert, key)
    if cert is None and key is None:
        return None
    missing, present = ("tls_cert", "tls_key") if cert is None else ("tls_key", "tls_cert")
    raise InvalidSetting(
        BY_NAME[missing].variable,
        allowed=f"a path too when {given.label(present)} is set",
        got="nothing",
    )

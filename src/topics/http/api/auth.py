"""API keys: which key a request has, and what the key may do.

Keys come as one text, entries separated by commas:

    secret                    everything
    secret:scopes             those scopes, every name
    secret:scopes:prefixes    those scopes, names that start with one of the prefixes
    secret::prefixes          all scopes, limited by prefix

Scopes are joined by `+`, prefixes by `|`; a colon after the second belongs to the prefixes. With no
entry at all authentication is off and every client may do everything. A text with a mistake stops
the start: a key that grants something else than was meant would be worse.

Secrets are not kept. What stays is their SHA-256, and a presented token is compared with every one
of them in full, so that the time taken tells nothing. Which scope a request needs, and which routes
take a token from the query, is decided by the routes.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from topics.errors import Forbidden, InvalidSetting, Unauthorized
from topics.wire.query import QueryString

KeyId: TypeAlias = int
"""Place of a key among the entries, from 1. Tells keys apart and says nothing about the secret."""

_SCHEME: Final = b"Bearer "
_FINGERPRINT: Final = b"topics: what a key owns\0"
_FINGERPRINT_BYTES: Final = 16


class Scope(enum.Flag):
    """What a call needs and a key grants; `READ | WRITE` means both."""

    READ = enum.auto()
    WRITE = enum.auto()
    DELETE = enum.auto()
    ADMIN = enum.auto()


NO_SCOPE: Final = Scope(0)
ALL_SCOPES: Final = ~NO_SCOPE

_SCOPE_WORDS: Final = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "delete": Scope.DELETE,
    "del": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}


def scope_of(words: Iterable[str]) -> Scope:
    """The scopes that all these words name together."""
    return reduce(or_, (_SCOPE_WORDS[word] for word in words), NO_SCOPE)


_ALLOWED: Final = (
    "entries secret[:scopes[:prefixes]] joined by ',', "
    "with scopes out of read, write, delete, admin and rw joined by '+'"
)


@dataclass(frozen=True, slots=True)
class Principal:
    """The rights of the caller of a request. `key_id` is None when authentication is off."""

    key_id: KeyId | None = None
    scopes: Scope = ALL_SCOPES
    prefixes: tuple[str, ...] = ()
    fingerprint: bytes = b""
    """Tells keys apart across restarts; what a key owns on disk carries it."""

    def may(self, scope: Scope) -> bool:
        """Whether the key has every scope in `scope`."""
        return scope in self.scopes

    def allows(self, name: str) -> bool:
        """Whether the key may use this topic or router name, given percent-decoded."""
        return not self.prefixes or name.startswith(self.prefixes)

    def allows_all(self, *names: str) -> bool:
        """Whether the key may use each of these names."""
        return not self.prefixes or all(name.startswith(self.prefixes) for name in names)

    def need(self, scope: Scope, *, topic: str | None = None) -> None:
        """Refuse a call that needs a scope which the key does not have."""
        if scope not in self.scopes:
            words = "+".join(part.name.lower() for part in Scope if part in scope and part.name)
            raise Forbidden(scope=words, topic=topic)

    def need_name(self, topic: str) -> None:
        """Refuse a call whose body names a topic that the key may not use."""
        if not self.allows(topic):
            raise Forbidden(topic=topic)

    def has_rights_of(self, other: Principal) -> bool:
        """Whether two keys grant exactly the same."""
        return (self.scopes, set(self.prefixes)) == (other.scopes, set(other.prefixes))


ANYONE: Final = Principal()
"""The caller of a server without keys."""


@dataclass(frozen=True, slots=True)
class _Key:
    digest: bytes
    principal: Principal


class Keyring:
    """The keys of a server. Its `repr` shows how many, never which."""

    __slots__ = ("_enabled", "_keys")

    def __init__(self, text: str = "", *, setting: str = "TOPICS_API_KEYS") -> None:
        """Read these entries; `InvalidSetting`, naming `setting`, when one is malformed."""
        self._enabled = False
        self._keys: list[_Key] = []
        for number, entry in enumerate(text.split(","), 1):
            if not entry.strip():
                continue
            self._enabled = True
            try:
                self._add(*_parse_entry(number, entry.strip()))
            except _BadEntry as error:
                got = f"{error} in entry {number}"
                raise InvalidSetting(setting, allowed=_ALLOWED, got=got) from error

    def __repr__(self) -> str:
        return f"Keyring({len(self._keys)} keys, {'on' if self._enabled else 'off'})"

    @property
    def enabled(self) -> bool:
        """Whether requests need a key; true even when no entry has a usable one."""
        return self._enabled

    @property
    def is_shared(self) -> bool:
        """Whether there is more than one key: then each has its share of what all may take."""
        return len(self._keys) > 1

    def has(self, fingerprint: bytes) -> bool:
        """Whether one of the keys has this fingerprint."""
        return any(key.principal.fingerprint == fingerprint for key in self._keys)

    def find(self, token: bytes | None) -> Principal | None:
        """The principal of a token; None when it is missing or unknown."""
        if not self._enabled:
            return ANYONE
        presented = _digest(token or b"")
        found = None
        for key in self._keys:
            # No early exit: how long this takes must not depend on which key fits.
            if hmac.compare_digest(key.digest, presented):
                found = key.principal
        return found

    def authenticate(self, token: bytes | None) -> Principal:
        """The principal of a token, or `Unauthorized`."""
        principal = self.find(token)
        if principal is None:
            raise Unauthorized.unknown() if token else Unauthorized.missing()
        return principal

    def _add(self, secret: str, principal: Principal) -> None:
        if not secret:
            return  # an empty token is never accepted, but authentication stays on
        digest = _digest(secret.encode("utf-8", "surrogateescape"))
        for known in self._keys:
            if known.digest == digest:
                if not known.principal.has_rights_of(principal):
                    raise _BadEntry("a secret given before with other rights")
                return
        # Not the digest itself: a reader of the data directory must not learn what tokens are
        # compared with.
        fingerprint = _digest(_FINGERPRINT + digest)[:_FINGERPRINT_BYTES]
        self._keys.append(_Key(digest, replace(principal, fingerprint=fingerprint)))


def may_open(owner: KeyId | None, presented: Principal | None) -> bool:
    """Whether a stream session of `owner` opens for this caller: only for the very same key.

    A session made without authentication has no owner and opens for a client that knows its id.
    """
    return owner is None or (presented is not None and presented.key_id == owner)


# Tokens in requests


def bearer_token(authorization: bytes | None) -> bytes | None:
    """The token of an `Authorization` header; None unless the scheme is exactly `Bearer`."""
    if authorization is None:
        return None
    value = authorization.strip()
    if not value.startswith(_SCHEME):
        return None
    return value[len(_SCHEME) :].strip()


def stream_token(authorization: bytes | None, query: QueryString) -> bytes | None:
    """The token of a request that opens an event stream: from the header, else from `?token=`.

    Browsers cannot set headers on such a request. Only routes that open one may use this, for
    addresses end up in logs. Of several the first counts.
    """
    from_header = bearer_token(authorization)
    if from_header is not None:
        return from_header
    token = query.first("token")
    return None if token is None else token.strip().encode("utf-8", "surrogateescape")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


# The text of the keys


class _BadEntry(ValueError):
    """What is wrong with an entry. The secret stays out: refusals end up in logs."""


def _parse_entry(number: int, entry: str) -> tuple[str, Principal]:
    secret, scopes, prefixes = (*entry.split(":", 2), "", "")[:3]
    return secret.strip(), Principal(number, _parse_scopes(scopes), _parse_prefixes(prefixes))


def _parse_scopes(field: str) -> Scope:
    if not field:
        return ALL_SCOPES
    granted = NO_SCOPE
    for word in filter(None, (word.strip() for word in field.split("+"))):
        scope = _SCOPE_WORDS.get(word.lower())
        if scope is None:
            raise _BadEntry(f"the unknown scope {word!r}")
        granted |= scope
    if not granted:
        # Blank is not empty: the operator meant to grant something, and all scopes is a guess.
        raise _BadEntry(f"the scope field {field!r} without any scope")
    return granted


def _parse_prefixes(field: str) -> tuple[str, ...]:
    return tuple(filter(None, (prefix.strip() for prefix in field.split("|"))))

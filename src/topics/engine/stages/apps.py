"""Whose a staging app is, and how many of them are remembered, in all and per key.

An app belongs to the key that first staged or committed for it, until the app is forgotten: when it
has no stage left and its last commit is no longer remembered. Another key is refused, or it could
replace the stages of the owner, commit them before the owner does, or use up its epochs.

The owner is known by a fingerprint of its key. It is durable as the app is: in the header of every
stage, in the frame of every commit, in the snapshot. An app without an owner (staged by an earlier
version, or while the server had no keys) belongs to the first key that uses it. So does one whose
key is no longer among those of the server: after a key was replaced, its successor goes on. A key
that is limited to prefixes takes over only an app whose name, or all topics of whose last commit,
begin with one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from topics.core.catalog import Catalog
from topics.engine.settings import EngineSettings
from topics.errors import Forbidden, Throttled
from topics.storage.stages import StageInfo
from topics.values import CommittedRange

decode_result = msgspec.json.Decoder(dict[str, CommittedRange]).decode
SHARE: Final = 4
"""One key may take this part of what all may take together."""


def _anything(name: str) -> bool:
    return True


def _nothing(key: bytes) -> bool:
    return False


class Caller(NamedTuple):
    """The key that stages or commits. On a server without keys all callers are one, which may do
    everything."""

    key: bytes = b""  # its fingerprint
    allows: Callable[[str], bool] = _anything
    """Whether the key may use a name."""
    is_in_use: Callable[[bytes], bool] = _nothing
    """Whether a fingerprint is that of a key which the server has today."""
    has_share: bool = False
    """Whether a share of each limit is kept for other keys."""


ANYBODY: Final = Caller()


class Apps:
    """Every app that is known: it has a stage, or a commit, or an operation under way.

    The answer to the last commit is kept with the app and has a line for each topic. The limit on
    apps therefore counts an app once, and once more for each KiB of its answer.
    """

    def __init__(self, catalog: Catalog, settings: EngineSettings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._owners: dict[str, bytes] = {}
        self._weights: dict[str, int] = {}
        self._held: Counter[bytes] = Counter()  # weight of the apps of each owner
        self._total = 0
        self._uses: Counter[str] = Counter()  # stages and operations under way
        for name, app in catalog.apps.items():
            self._set(name, app.owner, weight_of(len(app.result)))

    def _set(self, name: str, owner: bytes, weight: int) -> None:
        self._remove(name)
        self._owners[name] = owner
        self._weights[name] = weight
        self._held[owner] += weight
        self._total += weight

    def _remove(self, name: str) -> None:
        if name in self._owners:
            weight = self._weights.pop(name)
            self._held[self._owners.pop(name)] -= weight
            self._total -= weight

    # Who may

    def check(self, name: str, caller: Caller) -> None:
        """Refuse a key that does not own the app and may not take it over."""
        owner = self._owners.get(name, b"")
        if not caller.key or owner == caller.key:
            return
        is_free = not owner or not caller.is_in_use(owner)
        if not is_free or not (caller.allows(name) or self._wrote_only(name, caller)):
            raise Forbidden(app=name)

    def _wrote_only(self, name: str, caller: Caller) -> bool:
        app = self._catalog.apps.get(name)
        given = {} if app is None else decode_result(app.result)
        return bool(given) and all(map(caller.allows, given))

    def enter(self, name: str, caller: Caller) -> bytes:
        """Begin an operation on an app, which is the caller's from now on; returns its owner."""
        self.check(name, caller)
        if name not in self._owners:
            self._require(1, caller)
        self._own(name, caller.key or self._owners.get(name, b""))
        self._uses[name] += 1
        return self._owners[name]

    def _own(self, name: str, owner: bytes) -> None:
        self._set(name, owner, self._weights.get(name, 1))
        app = self._catalog.apps.get(name)
        if app is not None:
            app.owner = owner

    def is_owner(self, name: str, caller: Caller) -> bool:
        return bool(caller.key) and self._owners.get(name) == caller.key

    # How many

    def expect(self, name: str, caller: Caller, *, answer_bytes: int) -> None:
        """Count the answer of a commit that is about to happen; `committed` follows in any case."""
        weight = weight_of(answer_bytes)
        self._require(weight - self._weights[name], caller)
        self._set(name, self._owners[name], max(weight, self._weights[name]))

    def committed(self, name: str) -> None:
        """A commit has ended, well or not: count the answer that is kept."""
        app = self._catalog.apps.get(name)
        self._set(name, self._owners[name], 1 if app is None else weight_of(len(app.result)))

    def _require(self, more: int, caller: Caller) -> None:
        limit = self._settings.max_stage_apps
        if more > 0:
            require("max_stage_apps", limit, self._total + more)
            if caller.has_share:
                wanted = self._held[caller.key] + more
                require("max_stage_apps_per_key", share_of(limit), wanted)

    # How long

    def found(self, info: StageInfo) -> None:
        """A stage that lay there at the start; the older ones come first."""
        name = info.key.app
        app = self._catalog.apps.get(name)
        if app is None or not app.owner or info.created_ms >= app.last_use_ms:
            self._own(name, info.owner or self._owners.get(name, b""))
        self._uses[name] += 1

    def use(self, name: str) -> None:
        """A stage was kept."""
        self._uses[name] += 1

    def leave(self, name: str) -> None:
        """A stage has gone, or an operation has ended."""
        self._uses[name] -= 1
        if not self._uses[name]:
            del self._uses[name]
            self.forget(name)

    def forget(self, name: str) -> None:
        """The app has gone from the catalog, or was never there."""
        if name not in self._uses and name not in self._catalog.apps:
            self._remove(name)


def share_of(limit: int) -> int:
    """What one key may take of a limit for all; 0 where there is none."""
    return max(1, limit // SHARE) if limit else 0


def weight_of(answer_bytes: int) -> int:
    """What an app counts for, by the size of the answer to its last commit."""
    return 1 + answer_bytes // 1024


def require(name: str, limit: int, wanted: int) -> None:
    """Refuse what would be more than the limit; 0 is none."""
    if limit and wanted > limit:
        raise Throttled(name, maximum=limit)

"""Small text files that say what a directory is: FORMAT, CURRENT, the lock, the cold marker.

    FORMAT        one line of JSON with the store's id and the version of each format, then on its
                  own line 16 hex digits: H64 of the JSON line without its line feed
    CURRENT       "wal-<first_lfn>.log <generation> <16 hex digits>\\n"; H64 of all text before the
                  digits, the space too
    .topics.lock  one line of JSON about the owner; for people, never relied on
    .topics-cold  the store's id in hex and a line feed

FORMAT is the gate: a number in it that we do not know means that some file here has a layout we
would misread, so nothing else is opened. CURRENT is only a check on the directory listing, so
reading it badly is an answer (None), not an error.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.checksum import h64

STORE_VERSION: Final = 3
WAL_VERSION: Final = 3
SEGMENT_VERSION: Final = 2
SNAPSHOT_VERSION: Final = 4
PARTS_VERSION: Final = 5
"""Of the snapshot format once a store has parts: programs that know none must not open it."""

REWRITTEN_VERSION: Final = 3
"""Of the segment format once a store has segments that an erasure wrote anew, under other names."""

_VERSIONS: Final = {
    "store": STORE_VERSION,
    "wal": WAL_VERSION,
    "segment": SEGMENT_VERSION,
    "snapshot": SNAPSHOT_VERSION,
}
_ALSO_READ: Final = {"snapshot": PARTS_VERSION, "segment": REWRITTEN_VERSION}
_STORE_ID = re.compile(r"[0-9a-f]{32}")
_CURRENT = re.compile(rb"((wal-[0-9]+\.log) ([0-9]{1,20}) )([0-9a-f]{16})\n")


class StoreFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identity of a store and the version of every format in it."""

    store_id: str  # 32 hex digits
    store: int
    wal: int
    segment: int
    snapshot: int
    created_ms: int

    @property
    def id_bytes(self) -> bytes:
        """The id as log file headers carry it."""
        return bytes.fromhex(self.store_id)


def new_format(store_id: bytes, *, created_ms: int) -> StoreFormat:
    """The identity of a store made by this version."""
    return StoreFormat(store_id.hex(), **_VERSIONS, created_ms=created_ms)


def with_parts(identity: StoreFormat) -> StoreFormat:
    """The identity of the same store from its first part of a snapshot on."""
    return msgspec.structs.replace(identity, snapshot=PARTS_VERSION)


def with_rewritten(identity: StoreFormat) -> StoreFormat:
    """The identity of the same store from its first segment that is written anew on."""
    return msgspec.structs.replace(identity, segment=REWRITTEN_VERSION)


def store_mark(store_id: bytes) -> int:
    """The part of the store's id that a beacon carries."""
    return int.from_bytes(store_id[:8], "little")


def encode_format(identity: StoreFormat) -> bytes:
    line = msgspec.json.encode(identity)
    return b"%b\n%016x" % (line, h64(line))


def decode_format(data: bytes, *, file: str) -> StoreFormat:
    """The identity in FORMAT; `RefusedToOpen` when it is damaged or of another version."""
    line, separator, digest = data.partition(b"\n")
    if not separator or digest != b"%016x" % h64(line):
        raise _refusal(file, "it is damaged; restore it from a backup of this directory")
    _insist_on_versions(line, file)
    try:
        identity = msgspec.json.decode(line, type=StoreFormat)
    except msgspec.ValidationError as error:
        raise _refusal(file, f"it says something this version does not know ({error})") from error
    if not _STORE_ID.fullmatch(identity.store_id):
        raise _refusal(file, "its store id is not 32 hex digits")
    return identity


def _insist_on_versions(line: bytes, file: str) -> None:
    """Versions are judged first and alone: another one may have other fields beside them."""
    try:
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        versions = {name: msgspec.json.decode(found[name], type=int) for name in _VERSIONS}
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError) as error:
        raise _refusal(file, "it does not name the versions of the formats") from error
    for name, known in _VERSIONS.items():
        if versions[name] not in (known, _ALSO_READ.get(name)):
            raise _refusal(
                file,
                f"its {name} format is version {versions[name]}, this program reads {known}; "
                "use the program that wrote it",
            )


def _refusal(file: str, why: str) -> RefusedToOpen:
    return RefusedToOpen("format", message=f"cannot read the store's FORMAT: {why}", file=file)


# CURRENT


class Current(NamedTuple):
    """The log file a group was writing, and in which generation."""

    first_lfn: int
    generation: int


def encode_current(first_lfn: int, generation: int) -> bytes:
    text = f"{layout.wal_name(first_lfn)} {generation} ".encode()
    return b"%b%016x\n" % (text, h64(text))


def decode_current(data: bytes) -> Current | None:
    """What CURRENT names; None when it cannot be read, which only costs a check."""
    found = _CURRENT.fullmatch(data)
    if not found or found[4] != b"%016x" % h64(found[1]):
        return None
    first_lfn = layout.parse_wal(found[2].decode())
    return None if first_lfn is None else Current(first_lfn, int(found[3]))


# The lock and the cold marker


class LockOwner(msgspec.Struct, frozen=True, gc=False):
    """Who holds a data directory."""

    pid: int
    host: str
    started_ms: int
    boot_id: str  # 32 hex digits


def encode_lock(owner: LockOwner) -> bytes:
    return msgspec.json.encode(owner) + b"\n"


def decode_lock(data: bytes) -> LockOwner | None:
    """The owner, if the lock file tells; a crash may have left it empty or half written."""
    try:
        return msgspec.json.decode(data, type=LockOwner)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def encode_cold_marker(store_id: bytes) -> bytes:
    return store_id.hex().encode() + b"\n"


def decode_cold_marker(data: bytes) -> bytes | None:
    """The id of the store a cold directory belongs to; None when it cannot be told."""
    text = data.removesuffix(b"\n").decode(errors="replace")
    return bytes.fromhex(text) if _STORE_ID.fullmatch(text) else None

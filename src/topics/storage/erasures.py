"""The ledger of erasures: what was removed from disk for good, one small file per erasure.

    meta/erasures/0000000000000001.json    a finished erasure: its receipt
    meta/erasures/0000000000000002.begun   one that is under way, and goes on after a restart

Each file is one line of JSON, a line feed, the SHA-256 of the line in 64 hex digits, a line feed.
A receipt names the SHA-256 of the receipt before it, so that none can be changed, removed or put in
between without every later one telling. The first names 64 zeros.

A ledger has no payload, tag or node of an erased record: the tag that was asked for is there as
a salted hash only. So the ledger may be kept and copied as long as anybody wants. It travels with
backups: wherever older bytes come back, a record counts as deleted if its seq is in `erased`, or if
it is not above `bound` and the scope covers it: retention may have removed it before the erasure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of, read_file, replace_file

NO_RECEIPT: Final = "0" * 64
"""What the first receipt names as the one before it."""

T = TypeVar("T", bound="Begun")


class BadLedger(ValueError):
    """A file of the ledger is damaged, missing or not the one that was written."""


class TagHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The salted hash of a tag or tag prefix: a reader who knows the tag can confirm it."""

    salt: str  # 32 hex digits
    sha256: str  # of the salt's bytes and the text
    is_prefix: bool

    @classmethod
    def of(cls, tag: str, *, salt: bytes, is_prefix: bool) -> TagHash:
        return cls(salt.hex(), sha256(salt + tag.encode()).hexdigest(), is_prefix)

    def is_of(self, tag: str) -> bool:
        """Whether a record with this tag was meant."""
        if not self.is_prefix:
            return self._is_hash_of(tag)
        return any(self._is_hash_of(tag[:length]) for length in range(len(tag) + 1))

    def _is_hash_of(self, text: str) -> bool:
        return sha256(bytes.fromhex(self.salt) + text.encode()).hexdigest() == self.sha256


class ErasureScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a caller asked to erase; with both, records that fit both."""

    before_seq: int | None = None
    tag: TagHash | None = None

    def covers(self, seq: int, tag: str | None) -> bool:
        """Whether a record was meant, wherever it turns up again."""
        if self.before_seq is not None and seq >= self.before_seq:
            return False
        return self.tag is None or (tag is not None and self.tag.is_of(tag))


class Begun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An erasure whose delete is durable and whose bytes have still to go."""

    number: int
    store_id: str  # 32 hex digits
    topic: str
    topic_id: int
    scope: ErasureScope
    begun_ms: int
    deleted: int  # records that the delete at its beginning removed
    bound: int  # the topic's head then: the scope reaches no later record
    delete_version: int  # of the topic then; every delete up to it becomes physical
    erased: list[tuple[int, int]]  # first and last seq of each range of deleted records


class ByteScan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The search for erased bytes in the files of the store, once they should be gone."""

    probes: int  # byte sequences of erased records that were looked for; they are kept nowhere
    files: int
    bytes: int
    found: list[str]  # files in which a probe was found
    unread: list[str]  # files that could not be read


class Rewritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment that was written anew without its dead records."""

    file: str  # the old `.data`, below the data or the cold directory
    records: int  # that were left out
    bytes: int  # by which it became smaller


class Erasure(Begun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receipt of a finished erasure."""

    previous: str  # SHA-256 of the receipt before, 64 hex digits
    ended_ms: int
    rewritten: list[Rewritten]
    removed: list[str]  # files, below the data or the cold directory
    scan: ByteScan
    unreached: list[str]  # places that may have copies and that this erasure could not reach


class ErasureLedger:
    """The files of one data directory. Every call reads or writes the disk."""

    def __init__(self, fs: Fs, data_dir: str) -> None:
        self._fs = fs
        self.directory = f"{data_dir}/{layout.META}/{layout.ERASURES}"

    def begun(self) -> list[Begun]:
        """The erasures under way, oldest first."""
        return [self.note(number) for number in self.begun_numbers()]

    def begun_numbers(self) -> list[int]:
        """The numbers of the erasures under way, in order."""
        return self._numbers(begun=True)

    def receipts(self) -> list[Erasure]:
        """Every receipt, oldest first; `BadLedger` when the chain does not hold."""
        return verified(self.files())

    def files(self) -> list[tuple[int, bytes]]:
        """Number and contents of each receipt, for a copy of the ledger."""
        return [(n, read_file(self._fs, self.path(n))) for n in self._numbers()]

    def path(self, number: int) -> str:
        """Where the receipt with a number lies."""
        return f"{self.directory}/{layout.erasure_name(number)}"

    def begin(self, begun: Begun) -> None:
        """Note an erasure durably: from now on a restart goes on with it."""
        self._make_directory()
        crashpoint("erase.begin")
        path = self._begun_path(begun.number)
        try:
            replace_file(self._fs, path, encode(begun))
        except OSError:
            with suppress(OSError):  # a restart must not go on with it: later receipts may exist
                self._fs.unlink(path)
            raise
        crashpoint("erase.begun")

    def append(self, receipt: Erasure) -> None:
        """Keep a receipt durably; then its erasure is no longer under way."""
        self._make_directory()
        replace_file(self._fs, self.path(receipt.number), encode(receipt))
        crashpoint("erase.receipt")
        with suppress(FileNotFoundError):
            self._fs.unlink(self._begun_path(receipt.number))
            self._fs.sync_dir(self.directory)

    def restore(self, files: Sequence[tuple[int, bytes]]) -> None:
        """Take over the receipts of a copy, as `files` gave them, durably."""
        verified(files)
        self._make_directory()
        for number, data in files:
            replace_file(self._fs, self.path(number), data)

    def next_number(self) -> int:
        """The number of the next erasure."""
        return max([0, *self._numbers(), *self._numbers(begun=True)]) + 1

    def clear_temporary(self) -> None:
        """Remove what a crash left half written, and notes of erasures that have a receipt."""
        if not self._fs.exists(self.directory):
            return
        names = self._fs.listdir(self.directory)
        begun = [self._begun_path(number) for number in self._numbers()]
        unwanted = [path for path in begun if self._fs.exists(path)]
        unwanted += [f"{self.directory}/{name}" for name in names if name.endswith(TMP_SUFFIX)]
        for path in unwanted:
            self._fs.unlink(path)
        if unwanted:
            self._fs.sync_dir(self.directory)

    def note(self, number: int) -> Begun:
        """The note of an erasure under way; `BadLedger` when it is not intact."""
        path = self._begun_path(number)
        begun = _decode(read_file(self._fs, path), Begun, path)[0]
        if begun.number != number:
            raise BadLedger(f"{path} is of erasure {begun.number}")
        return begun

    def _begun_path(self, number: int) -> str:
        return f"{self.directory}/{layout.erasure_name(number, begun=True)}"

    def _numbers(self, *, begun: bool = False) -> list[int]:
        if not self._fs.exists(self.directory):
            return []
        known = [layout.parse_erasure(name) for name in self._fs.listdir(self.directory)]
        ended = {entry[0] for entry in known if entry and not entry[1]}
        if not begun:
            return sorted(ended)
        return sorted({entry[0] for entry in known if entry and entry[1]} - ended)

    def _make_directory(self) -> None:
        for created in self._fs.mkdirs(self.directory):
            self._fs.sync_dir(parent_of(created))


def encode(entry: Begun) -> bytes:
    """The bytes of a file of the ledger."""
    line = msgspec.json.encode(entry)
    return b"%b\n%b\n" % (line, sha256(line).hexdigest().encode())


def hash_of(data: bytes) -> str:
    """What the next receipt names as the one before it, from the bytes of the file before."""
    return sha256(data.partition(b"\n")[0]).hexdigest()


def verified(files: Sequence[tuple[int, bytes]]) -> list[Erasure]:
    """The receipts in these files, the oldest first; `BadLedger` when the chain does not hold."""
    previous, last = NO_RECEIPT, 0
    receipts: list[Erasure] = []
    for number, data in files:
        receipt, digest = _decode(data, Erasure, f"receipt {number}")
        if receipt.number != number or number <= last or receipt.previous != previous:
            raise BadLedger(f"receipt {number} does not follow the one before it")
        receipts.append(receipt)
        previous, last = digest, number
    return receipts


def erased_seqs(receipts: Iterable[Erasure]) -> dict[int, list[tuple[int, int]]]:
    """By topic id the ranges of seqs that must not come back, in no order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for receipt in receipts:
        found.setdefault(receipt.topic_id, []).extend(receipt.erased)
    return found


def _decode(data: bytes, kind: type[T], name: str) -> tuple[T, str]:
    line, _, digest = data.partition(b"\n")
    found = sha256(line).hexdigest()
    if digest != found.encode() + b"\n":
        raise BadLedger(f"{name} is damaged")
    try:
        return msgspec.json.decode(line, type=kind), found
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadLedger(f"{name} cannot be read: {error}") from error

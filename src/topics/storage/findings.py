"""What a verification found, and how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from topics.errors import RefusedToOpen
from topics.storage.fs import Fs


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something wrong: where, and what."""

    file: str
    what: str
    offset: int | None = None
    topic: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file} at {self.offset}"
        if self.topic is not None:
            place += f", topic {self.topic}"
        if self.seq is not None:
            place += f", seq {self.seq}"
        return f"{place}: {self.what}"


class Account(msgspec.Struct, frozen=True):
    """Where the seqs of one topic went, as its metadata has it."""

    topic: str
    head_seq: int
    live: int
    deleted: int
    lost_cap: int
    lost_ttl: int
    lost_crash: int
    skipped: int
    source_trim: int

    @property
    def written(self) -> int:
        """Seqs that were given to records."""
        return self.head_seq - self.skipped - self.source_trim

    @property
    def adds_up(self) -> bool:
        """Whether what was written is live, deleted or lost, and nothing else."""
        lost = self.lost_cap + self.lost_ttl + self.lost_crash
        return self.written == self.live + self.deleted + lost


@dataclass
class Report:
    """Everything learned so far. `advance` is told how many bytes were dealt with."""

    fs: Fs
    advance: Callable[[int], None] = lambda size: None
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    frames: int = 0
    records: int = 0
    accounts: list[Account] = field(default_factory=list)
    records_of: Counter[str] = field(default_factory=Counter)
    """By topic, the records of segments that are as they were written."""

    def note_record(self, topic: str) -> None:
        self.records += 1
        self.records_of[topic] += 1

    def add(self, part: Report) -> None:
        """Take in what was found elsewhere."""
        self.damage += part.damage
        self.notes += part.notes
        self.files += part.files
        self.bytes += part.bytes
        self.frames += part.frames
        self.records += part.records
        self.accounts += part.accounts
        self.records_of += part.records_of
        self.advance(part.bytes)

    def wrong(
        self,
        file: str,
        what: str,
        *,
        offset: int | None = None,
        topic: str | None = None,
        seq: int | None = None,
    ) -> None:
        self.damage.append(Finding(file, what, offset, topic, seq))

    def refused(self, refusal: RefusedToOpen) -> None:
        """Note why an open would be refused, unless the same place is known to be bad already."""
        place = refusal.file, refusal.offset
        if place not in [(known.file, known.offset) for known in self.damage]:
            what = str(refusal).removeprefix(f"{refusal.file}: ")
            self.wrong(refusal.file, what, offset=refusal.offset)

    def done_with(self, path: str) -> None:
        """A file was checked to its end."""
        size = self.fs.size(path)
        self.files += 1
        self.bytes += size
        self.advance(size)


def files_below(fs: Fs, directory: str) -> Iterator[str]:
    for name in sorted(fs.listdir(directory)):
        path = f"{directory}/{name}"
        try:
            yield from files_below(fs, path)
        except NotADirectoryError:
            yield path

"""A log whose calls are interrupted, and the book of what it may hold afterwards.

A call that returned was done. One that an exception left may have been done, whole, or not at all;
so the book holds every state that is possible by now, and the log has to show one of them. What it
shows is the state from then on. `Interrupted`, from a log in memory, ends that log and no promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from topics.embedded import Log, open_log
from topics.errors import Interrupted, TopicsError
from topics.values import Job

T = TypeVar("T")

CAP = 12
CLASSES = ("fsync", "disk", "memory")
WHOLE = (*CLASSES, "source", "jobs", "left", "right", "made")
"""Topics that must hold exactly what the book says."""
FADING = {"capped": CAP, "fleeting": 0, "ephemeral": 0}
"""Topics that lose their oldest records, and how many of them they keep at least."""
COPIES = {"all": "source", "some": "source"}
LETTERS = ("tries", "dead")
"""A job that was tried too often is in the second, or in both for a while."""


CONSUMER = "consumer"


class Damaged(Exception):
    """What the log shows is none of the states that are possible."""


class Book:
    """One possible state. A record is its number; its seq is known once it was seen."""

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {}
        self.cursors: dict[str, int] = {}
        self.routers: set[str] = set()
        self.durability = "disk"  # of the topic whose configuration changes

    def with_change(self, change: Callable[[Book], None]) -> Book:
        changed = Book()
        changed.topics = {name: [*numbers] for name, numbers in self.topics.items()}
        changed.cursors = {**self.cursors}
        changed.routers = {*self.routers}
        changed.durability = self.durability
        change(changed)
        return changed


class World:
    """A log, what it may hold, and how to look."""

    def __init__(self, directory: Path | None, random: Random, **settings: Any) -> None:  # noqa: ANN401
        self.directory = directory
        self.random = random
        self.settings = settings
        self.number = 0
        self.epoch = 0
        self.held: Sequence[Job] = ()
        self.retry: Callable[[], object] | None = None
        """What makes sure that the last call was done, wherever it was left."""
        self.books = [Book()]
        self.seqs: dict[str, dict[int, int]] = {}
        self.recoveries = 0
        self.log: Log | None = None
        self.open()
        self._furnish()

    # The log

    def open(self) -> None:
        if self.log is None or self.log._closed:
            self.log = open_log(self.directory, **self.settings)

    def close(self) -> None:
        """Close the log; None first, since a call that is interrupted here did close it."""
        log = self.log
        if log is not None and self.directory is not None:
            log.close()
            self.log = None

    def reopen(self, how: str) -> None:
        """Begin again: with a stop, or like the next process after the death of this one."""
        log, self.log = self.log, None
        if log is not None and how == "stop":
            log.close()
        elif log is not None:
            log._abandon()
        del log
        self.open()

    @property
    def at(self) -> Log:
        if self.log is None or self.log._closed:  # a stop that was interrupted is a stop
            self.open()
        assert self.log is not None
        return self.log

    def _furnish(self) -> None:
        log = self.at
        made: dict[str, dict[str, Any]] = {name: {"durability": name} for name in CLASSES}
        made |= {"capped": {"cap_records": CAP}, "fleeting": {"ttl_ms": 40}}
        made |= {"ephemeral": {"durability": "ephemeral"}, "source": {}, "left": {}, "right": {}}
        made |= {"jobs": {"type": "queue"}, "dead": {}}
        made["tries"] = {"type": "queue", "max_deliveries": 2, "dead_letter": "dead"}
        for name, config in made.items():
            log.create(name, **config)
        for name in COPIES:
            log.create(name)
        log.route("all", source="source", dest="all", exactly_once=True)
        self.books[0].topics = {name: [] for name in (*made, *COPIES)}
        self.books[0].routers = {"all"}

    # Calls in doubt

    def do(
        self, change: Callable[[Book], None], call: Callable[[], T], *, again: bool = False
    ) -> T:
        """Make a call that changes the books so; it may be left at any place.

        With `again` it may be made again then, and must have been done once after that.
        """
        befores = self.books
        afters = [book.with_change(change) for book in befores]
        if again:
            self.retry = lambda: self._settle(call, afters)
        self.books = [*befores, *afters]
        answer = call()
        self.books = afters
        self.retry = None
        return answer

    def _settle(self, call: Callable[[], object], afters: list[Book]) -> None:
        self.retry = None
        call()
        self.books = afters

    def maybe(self, change: Callable[[Book], None], call: Callable[[], T]) -> T:
        """A call whose answer does not tell whether it changed anything."""
        self.books = [*self.books, *(book.with_change(change) for book in self.books)]
        return call()

    def numbers(self, count: int = 1) -> list[int]:
        first = self.number + 1
        self.number += count
        return [*range(first, first + count)]

    # Looking

    def judge(self) -> None:
        """Hold what the log shows against the books; raises `Damaged`."""
        try:
            found = self._look()
            self._judge(found)
        except Interrupted:
            if self.directory is not None:
                raise Damaged("a log with a directory says that it cannot recover") from None
            raise
        except (TopicsError, AssertionError, OSError, KeyError, IndexError, ValueError) as error:
            raise Damaged(f"{type(error).__name__}: {error}") from error

    def _look(self) -> Book:
        log, found = self.at, Book()
        found.routers = {router.router for router in log.routers()}
        for summary in log.topics():
            name = summary.topic
            records = self._records(log, name)
            numbers = [number for _, number in records]
            known = self.seqs.setdefault(name, {})
            for seq, number in records:
                moves = name in LETTERS or name == "made"
                if known.setdefault(number, seq) != seq and not moves:
                    raise Damaged(f"{name}: record {number} moved from {known[number]} to {seq}")
            audit = log.audit(name)
            is_other = audit.live != len(numbers) and name != "fleeting"  # it goes on to expire
            if not audit.adds_up or is_other:
                raise Damaged(f"{name}: {len(numbers)} records, but its ledger says {audit}")
            found.topics[name] = numbers
            for cursor in log.cursors(name):
                if not cursor.cursor.startswith(CONSUMER):
                    found.cursors[cursor.cursor] = cursor.seq
        found.durability = str(log.state("right", touch=False).config["durability"])
        return found

    def _records(self, log: Log, topic: str) -> list[tuple[int, int]]:
        records: list[tuple[int, int]] = []
        after = 0
        while True:
            page = log.read(topic, after=after)
            records += [(record.seq, record.data["n"]) for record in page.records]
            after = page.next_from_seq
            if page.caught_up:
                return records

    def _judge(self, found: Book) -> None:
        complaints = [self._complaint(book, found) for book in self.books]
        if all(complaints):
            raise Damaged(" / or: ".join(dict.fromkeys(map(str, complaints))))
        matching = [
            book for book, complaint in zip(self.books, complaints, strict=True) if not complaint
        ]
        best = max(matching, key=lambda book: sum(map(len, book.topics.values())))
        for name in (*FADING, *LETTERS):
            best.topics[name] = found.topics[name]
        self.books = [best]

    def _complaint(self, book: Book, found: Book) -> str | None:
        """Why the log is not in this state; None if it is."""
        if found.topics.keys() != book.topics.keys():
            return f"topics {sorted(found.topics.keys() ^ book.topics.keys())} differ"
        found_apart = (found.cursors, found.routers, found.durability)
        if found_apart != (book.cursors, book.routers, book.durability):
            return f"cursors, routers and class are {found_apart}"
        for name in WHOLE:
            if found.topics.get(name) != book.topics.get(name):
                return f"{name} holds {found.topics.get(name)} instead of {book.topics.get(name)}"
        for name, least in FADING.items():
            held, written = found.topics[name], book.topics[name]
            if not _is_end(held, written) or len(held) < min(least, len(written)):
                return f"{name} holds {held} of {written}"
        return _copies_complaint(book, found) or _jobs_complaint(book, found)

    def still_writes(self) -> None:
        """The log has to go on: a write of each class, seen at once."""
        for name in CLASSES:
            (number,) = self.numbers()
            self.do(adding(name, [number]), lambda name=name, n=number: append(self, name, [n]))  # type: ignore[misc]
        self.judge()


def _copies_complaint(book: Book, found: Book) -> str | None:
    originals, copies, some = (
        book.topics["source"],
        found.topics["all"],
        found.topics["some"],
    )
    if copies != originals:
        return f"the copies are {copies}, the originals {originals}"
    if some != sorted(set(some)) or not set(some) <= set(originals):
        return f"some copies are {some}, the originals {originals}"
    return None


def _jobs_complaint(book: Book, found: Book) -> str | None:
    jobs = set(found.topics["tries"]) | set(found.topics["dead"])
    wanted = set(book.topics["tries"]) | set(book.topics["dead"])
    return None if jobs == wanted else f"jobs and letters are {jobs}, not {wanted}"


def _is_end(held: Sequence[int], written: Sequence[int]) -> bool:
    return not held or list(held) == list(written[-len(held) :])


def adding(topic: str, numbers: Sequence[int]) -> Callable[[Book], None]:
    return lambda book: book.topics.setdefault(topic, []).extend(numbers)


def append(world: World, topic: str, numbers: Sequence[int], **options: Any) -> Any:  # noqa: ANN401
    """Append records with these numbers, of a size and with a tag that follow from them."""
    rows = [{"data": {"n": n, "pad": "x" * _size(n)}, "tag": f"t{n % 3}"} for n in numbers]
    return world.at.append(topic, rows, **options)


def _size(number: int) -> int:
    return 6000 if number % 7 == 0 else 10

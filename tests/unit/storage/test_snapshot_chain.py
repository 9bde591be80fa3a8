"""Snapshots in parts: the newest line of everything counts, and a chain is sound as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.storage.test_snapshot import APP, FS, HEAD, ROUTER, STORE_ID, topic
from tests.unit.storage.test_snapshot import signed as sign

from topics.storage import layout
from topics.storage.snapshots import file as snapshot
from topics.storage.snapshots.chain import (
    BrokenChain,
    Chain,
    Changed,
    SnapshotFile,
    check_chain,
    list_snapshots,
    read_chain,
    standing_lines,
)
from topics.storage.snapshots.file import BadSnapshot, SnapshotWriter, read_snapshot
from topics.storage.snapshots.lines import (
    AppLine,
    BodyLine,
    EndLine,
    GoneLine,
    HeadLine,
    PartLine,
    RouterLine,
    encode_line,
)

NOTHING = GoneLine(topics=[], routers=[], apps=[])
OTHER = msgspec.structs.replace(ROUTER, name="r2")
MOVED = msgspec.structs.replace(ROUTER, cursor=7)


class Store:
    """A data directory with snapshots."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        (path / layout.META).mkdir()

    def file(self, number: int) -> Path:
        return Path(layout.snapshot_path(self.path, number))

    def head(self, number: int, after: int = 0) -> HeadLine:
        head = msgspec.structs.replace(HEAD, id=number)
        if not after:
            return head
        checksum = read_snapshot(FS, str(self.file(after)), STORE_ID).checksum
        fields = msgspec.structs.asdict(head)
        return PartLine(**fields, after=(after, f"{checksum:016x}"))

    def write(
        self, number: int, lines: list[BodyLine], *, after: int = 0, gone: GoneLine = NOTHING
    ) -> SnapshotFile:
        file = FS.open(str(self.file(number)), write=True, create=True, truncate=True)
        writer = SnapshotWriter(file, self.head(number, after), gone if after else None)
        for _ in writer.add(lines):
            pass
        finishing = writer.finish()
        try:
            while True:
                next(finishing)
        except StopIteration as done:
            return SnapshotFile(number, done.value, writer.checksum)
        finally:
            file.close()

    def read(self, number: int) -> Chain:
        present = list_snapshots(FS, self.path)
        return read_chain(FS, self.path, number, STORE_ID, present=present)

    def check(self, number: int) -> tuple[SnapshotFile, ...]:
        present = list_snapshots(FS, self.path)
        return check_chain(FS, self.path, number, STORE_ID, present=present)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def three(store: Store) -> list[SnapshotFile]:
    return [
        store.write(2, [topic(1), topic(2), topic(3), ROUTER, OTHER, APP]),
        store.write(
            4,
            [topic(2, deleted_runs=1), topic(4), MOVED],
            after=2,
            gone=GoneLine(topics=[3], routers=["r2"], apps=["etl"]),
        ),
        store.write(
            6,
            [topic(2, deleted_runs=2), APP],
            after=4,
            gone=GoneLine(topics=[1], routers=[], apps=[]),
        ),
    ]


def test_the_newest_line_of_everything_counts(store: Store) -> None:
    files = three(store)
    chain = store.read(6)
    found = chain.snapshot
    assert sorted(found.topics, key=lambda line: line.id) == [topic(2, deleted_runs=2), topic(4)]
    assert (found.routers, found.apps) == ([MOVED], [APP])
    assert found.head.id == 6
    assert chain.files == tuple(files)
    assert chain.numbers == [2, 4, 6]
    assert chain.changed == Changed({1, 2}, set(), {"etl"})
    assert store.check(6) == tuple(files)


def test_what_went_and_came_again_is_there(store: Store) -> None:
    store.write(1, [ROUTER, APP])
    store.write(2, [], after=1, gone=GoneLine(topics=[], routers=["r"], apps=["etl"]))
    store.write(3, [MOVED], after=2)
    assert store.read(2).snapshot.routers == []
    assert store.read(3).snapshot.routers == [MOVED]
    assert store.read(3).snapshot.apps == []


def test_a_whole_snapshot_is_a_chain_of_one(store: Store) -> None:
    file = store.write(2, [topic(1)])
    chain = store.read(2)
    assert (chain.files, chain.changed) == ((file,), None)
    assert store.check(2) == (file,)


def test_without_a_directory_there_are_no_snapshots(tmp_path: Path) -> None:
    assert list_snapshots(FS, str(tmp_path)) == []


Spoil = Callable[[Store], object]
SPOILT: dict[str, tuple[int, Spoil]] = {
    "gone": (4, lambda store: store.file(4).unlink()),
    "another one": (4, lambda store: store.write(4, [topic(9)], after=2)),
    "damaged": (2, lambda store: store.file(2).write_bytes(b"SNP1")),
    "empty": (4, lambda store: store.file(4).write_bytes(b"")),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_chain_with_an_unsound_file_is_invalid_and_says_which(store: Store, name: str) -> None:
    three(store)
    number, spoil = SPOILT[name]
    spoil(store)
    with pytest.raises(BrokenChain) as caught:
        store.read(6)
    assert caught.value.number == number
    with pytest.raises(BadSnapshot):
        store.check(6)
    store.file(6).write_bytes(b"")
    with pytest.raises(BadSnapshot):
        store.read(6)


def test_a_file_that_vanishes_meanwhile_is_not_called_damage(store: Store) -> None:
    three(store)
    present = list_snapshots(FS, store.path)
    store.file(2).unlink()
    with pytest.raises(FileNotFoundError):
        read_chain(FS, store.path, 6, STORE_ID, present=present)


def test_a_part_comes_after_an_older_file(store: Store) -> None:
    store.write(2, [])
    store.write(4, [], after=2)
    store.write(1, [], after=4)  # made by hand: nobody writes it
    with pytest.raises(BrokenChain):
        store.read(1)
    with pytest.raises(BrokenChain):
        store.check(1)


def signed(path: Path, texts: list[bytes], version: int) -> None:

    path.write_bytes(sign(b"".join(text + b"\n" for text in texts), version=version))


END = encode_line(EndLine(topics=0, routers=0, apps=0))
GONE = encode_line(NOTHING)


def test_a_file_is_a_whole_snapshot_or_a_part_and_says_so_throughout(store: Store) -> None:
    store.write(2, [])
    whole, part = encode_line(store.head(4)), encode_line(store.head(4, after=2))
    wrong = {
        "a part without the line of what is gone": ([part, END], 5),
        "a whole snapshot with it": ([whole, GONE, END], 4),
        "a part that calls itself whole": ([part, GONE, END], 4),
        "a whole snapshot that calls itself a part": ([whole, END], 5),
        "twice gone": ([part, GONE, GONE, END], 5),
    }
    for what, (texts, version) in wrong.items():
        signed(store.file(4), texts, version)
        with pytest.raises(BadSnapshot):
            pytest.fail(f"{what}: {store.read(4)}")


def test_a_quick_check_sees_what_the_first_line_tells(store: Store) -> None:
    for first in (b"{}", b"\xff", END):
        signed(store.file(2), [first, END], 4)
        with pytest.raises(BadSnapshot):
            store.check(2)
    store.write(2, [])
    with pytest.raises(BrokenChain):
        check_chain(FS, store.path, 2, bytes(16), present=[2])


def lines_of(store: Store, files: list[SnapshotFile], replaced: Changed) -> list[bytes]:
    return [text for _, text in standing_lines(FS, store.path, files, replaced)]


def test_lines_that_still_count_are_copied_as_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = three(store)
    monkeypatch.setattr(snapshot, "BUFFER_BYTES", 100)
    told = lines_of(store, files, Changed())
    assert told == [encode_line(line) for line in (topic(2, deleted_runs=2), APP, topic(4), MOVED)]
    assert lines_of(store, files, Changed({2, 4}, {"r"}, {"etl"})) == []
    assert not lines_of(store, files[:1], Changed({1, 2, 3}, {"r", "r2"}, {"etl"}))


def test_lines_of_a_file_that_changed_are_worth_nothing(store: Store) -> None:
    files = three(store)
    store.write(2, [topic(1)])
    with pytest.raises(BadSnapshot, match="not as it was written"):
        lines_of(store, files, Changed())
    signed(store.file(2), [b"{", END], 4)
    with pytest.raises(BadSnapshot, match="cannot be read"):
        lines_of(store, files, Changed())


def test_marks_add_up() -> None:
    marks = Changed({1}, {"a"}, {"x"})
    marks.add(Changed({2}, {"b"}, {"y"}))
    assert marks == Changed({1, 2}, {"a", "b"}, {"x", "y"})


def test_copied_lines_are_counted_like_new_ones(store: Store) -> None:
    files = three(store)
    file = FS.open(str(store.file(8)), write=True, create=True)
    writer = SnapshotWriter(file, store.head(8))
    for _ in writer.copy(standing_lines(FS, store.path, files, Changed({2}))):
        pass
    for _ in writer.finish():
        pass
    file.close()
    found = store.read(8).snapshot
    assert (found.topics, found.routers, found.apps) == ([topic(4)], [MOVED], [APP])
    assert isinstance(found.routers[0], RouterLine)
    assert isinstance(found.apps[0], AppLine)

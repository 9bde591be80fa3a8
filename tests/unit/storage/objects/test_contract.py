"""What every destination of objects does: one suite for a directory and for an object store."""

import threading
from pathlib import Path

import pytest
from tests.object_server import ObjectServer
from tests.unit.storage.objects.conftest import QUICK

from topics.errors import InvalidRequest
from topics.storage.fs import Buffer
from topics.storage.objects.interface import (
    NoSuchObject,
    ObjectChanged,
    ObjectExists,
    Objects,
)
from topics.storage.objects.opening import open_objects


@pytest.fixture(params=["directory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "dest")
    s3: ObjectServer = request.getfixturevalue("s3")
    return f"s3://{s3.make_bucket()}/some/prefix"


@pytest.fixture
def objects(url: str) -> Objects:
    return open_objects(url, patience=QUICK)


def test_a_put_object_is_read_back_whole_and_in_parts(objects: Objects) -> None:
    objects.put("a/b", b"0123456789")
    assert objects.read("a/b").data == b"0123456789"
    assert objects.size("a/b") == 10
    assert objects.read_range("a/b", 2, 3) == b"234"
    assert objects.read_range("a/b", 8, 10) == b"89"
    assert objects.read_range("a/b", 10, 1) == b""
    assert objects.read_range("a/b", 99, 1) == b""


def test_a_put_takes_pieces_and_replaces_what_was_there(objects: Objects) -> None:
    objects.put("a", b"old")
    pieces: list[Buffer] = [b"x" * (9 << 20), memoryview(b"end")]
    objects.put("a", iter(pieces))
    assert objects.size("a") == (9 << 20) + 3
    assert objects.read_range("a", (9 << 20) - 1, 9) == b"xend"
    objects.put("a", b"")
    assert objects.read("a").data == b""


def test_a_second_create_is_refused_and_changes_nothing(objects: Objects) -> None:
    objects.create("root", b"first")
    with pytest.raises(ObjectExists):
        objects.create("root", b"second")
    assert objects.read("root").data == b"first"


def test_a_swap_needs_the_version_that_is_there(objects: Objects) -> None:
    created = objects.create("root", b"1")
    second = objects.swap("root", b"2", created)
    with pytest.raises(ObjectChanged):
        objects.swap("root", b"3", created)
    assert objects.read("root").data == b"2"
    assert objects.read("root").version == second
    objects.swap("root", b"3", objects.read("root").version)
    assert objects.read("root").data == b"3"


def test_a_swap_of_a_missing_object_is_refused(objects: Objects) -> None:
    version = objects.create("root", b"1")
    objects.delete("root")
    with pytest.raises(ObjectChanged):
        objects.swap("root", b"2", version)
    assert list(objects.list()) == []


def test_of_two_that_swap_at_once_one_wins(url: str) -> None:
    version = open_objects(url, patience=QUICK).create("root", b"start")
    lost: list[bytes] = []

    def swap(data: bytes) -> None:
        try:
            open_objects(url, patience=QUICK).swap("root", data, version)
        except ObjectChanged:
            lost.append(data)

    writers = [threading.Thread(target=swap, args=(b"writer %d" % n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(lost) == 3
    assert open_objects(url, patience=QUICK).read("root").data not in lost


def test_a_missing_object_is_told(objects: Objects) -> None:
    for read in (
        lambda: objects.read("no/such"),
        lambda: objects.size("no/such"),
        lambda: objects.read_range("no/such", 0, 1),
    ):
        with pytest.raises(NoSuchObject):
            read()
    objects.delete("no/such")


def test_a_folder_lists_what_is_below_it_only(objects: Objects) -> None:
    assert list(objects.list()) == []
    assert list(objects.list("data")) == []
    for name in ("data/1", "data/deep/2", "database", "root"):
        objects.put(name, b"12")
    assert {each.name for each in objects.list("data")} == {"data/1", "data/deep/2"}
    assert {each.size for each in objects.list()} == {2}
    assert len(list(objects.list())) == 4
    objects.delete("data/1")
    assert {each.name for each in objects.list("data")} == {"data/deep/2"}


@pytest.mark.parametrize("name", ["", "/a", "a//b", "../a", "a/..", ".a", "a b", "a\n", "a/"])
def test_a_name_that_leads_elsewhere_is_refused(objects: Objects, name: str) -> None:
    for call in (
        lambda: objects.put(name, b""),
        lambda: objects.create(name, b""),
        lambda: objects.read(name),
        lambda: objects.delete(name),
    ):
        with pytest.raises(InvalidRequest, match="no name of an object"):
            call()

"""The search for erased bytes: where it looks, and which record a hit lies in."""

from __future__ import annotations

import errno

from topics.batch import RecordBatch
from topics.storage.byte_scan import CHUNK, ProbeHit, files_of, search
from topics.storage.frames.append import encode_append
from topics.testing import FaultFs, SimDisk

PROBE = b'"a-secret-of-somebody"'


def frame(seq: int) -> bytes:
    batch = RecordBatch([b'{"x":%b}' % PROBE], tags=["t"])
    return encode_append(7, seq, 1, batch, durable=True)[0]


def hits(disk: SimDisk, *roots: str) -> list[ProbeHit]:
    return [hit for part in search(disk, roots, [PROBE]) for hit in part.hits]


def test_every_place_is_searched_but_the_ledger() -> None:
    disk = SimDisk()
    wanted = [
        "/d/meta/snapshot.0001.bin",
        "/d/wal/wal-0000000000000001.log",
        "/d/wal/shard-01/wal-0000000000000001.log",
        "/d/topics/00000001/seg-0000000000000001.data",
        "/d/topics/00000002.deleted/seg-0000000000000001.data",
        "/d/stages/0123456789abcdef-1/0-0.stage",
        "/d/quarantine/damaged",
        "/cold/topics/00000001/seg-0000000000000001.tag",
    ]
    for path in [*wanted, "/d/meta/erasures/0000000000000001.json"]:
        disk.put(path, PROBE)
    assert sorted(files_of(disk, ["/d", "/cold"])) == sorted(wanted)
    assert {hit.path for hit in hits(disk, "/d", "/cold")} == set(wanted)


def test_a_hit_tells_which_intact_record_it_lies_in() -> None:
    disk = SimDisk()
    data = frame(5) + b"\0" + PROBE + frame(6)[:-1] + b"?" + frame(9)
    disk.put("/d/wal/wal-0000000000000001.log", data)
    assert [hit.record for hit in hits(disk, "/d")] == [(7, 5), None, None, (7, 9)]


def test_what_lies_across_two_ranges_is_found_once() -> None:
    disk = SimDisk()
    disk.put("/d/quarantine/long", bytes(CHUNK - 5) + PROBE + bytes(CHUNK))
    assert len(hits(disk, "/d")) == 1


def test_files_that_cannot_be_read_are_named_and_those_that_vanish_are_not() -> None:
    disk = SimDisk()
    for name in "abc":
        disk.put(f"/d/quarantine/{name}", PROBE)
    faults = FaultFs(disk)
    faults.fail("open", errno.EIO, path="*/a")
    faults.fail("pread", errno.EIO, path="*/b")
    faults.fail("open", errno.ENOENT, path="*/c")
    found = list(search(faults, ["/d"], [PROBE]))
    assert [(part.path[-1], part.is_unread) for part in found] == [("a", True), ("b", True)]

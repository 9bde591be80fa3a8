"""The ledger of erasures: what it keeps, what it refuses, and what it does not tell."""

import errno

import msgspec
import pytest

from topics.storage import erasures
from topics.storage.erasures import (
    NO_RECEIPT,
    BadLedger,
    Begun,
    ByteScan,
    Erasure,
    ErasureLedger,
    ErasureScope,
    Rewritten,
    TagHash,
)
from topics.storage.fs import Fs
from topics.testing import FaultFs, Op, SimDisk

SCAN = ByteScan(probes=3, files=7, bytes=4096, found=[], unread=[])
SCOPE = ErasureScope(tag=TagHash.of("user-7/", salt=bytes(16), is_prefix=True))


def begun(number: int = 1) -> Begun:
    return Begun(
        number=number,
        store_id="00" * 16,
        topic="orders",
        topic_id=10,
        scope=SCOPE,
        begun_ms=1_700_000_000_000,
        deleted=2,
        bound=12,
        delete_version=4,
        erased=[(3, 5), (9, 9)],
    )


def receipt(number: int = 1, previous: str = NO_RECEIPT) -> Erasure:
    return Erasure(
        **msgspec.structs.asdict(begun(number)),
        previous=previous,
        ended_ms=1_700_000_001_000,
        rewritten=[Rewritten("topics/0000000A/seg-0000000000000001.data", 4, 200)],
        removed=["wal/wal-0000000000000001.log"],
        scan=SCAN,
        unreached=[],
    )


def chain(count: int) -> list[Erasure]:
    receipts: list[Erasure] = []
    previous = NO_RECEIPT
    for number in range(1, count + 1):
        receipts.append(receipt(number, previous))
        previous = erasures.hash_of(erasures.encode(receipts[-1]))
    return receipts


@pytest.fixture
def fs() -> Fs:
    return SimDisk().mount()


@pytest.fixture
def ledger(fs: Fs) -> ErasureLedger:
    return ErasureLedger(fs, "/d")


def test_a_ledger_that_never_had_an_entry_is_empty(ledger: ErasureLedger) -> None:
    assert (ledger.receipts(), ledger.begun(), ledger.files()) == ([], [], [])
    assert ledger.next_number() == 1
    ledger.clear_temporary()


def test_an_erasure_is_under_way_until_its_receipt_is_kept(ledger: ErasureLedger) -> None:
    ledger.begin(begun())
    assert ledger.begun() == [begun()]
    assert ledger.next_number() == 2
    ledger.append(receipt())
    assert ledger.begun() == []
    assert ledger.receipts() == [receipt()]


def test_what_was_kept_survives_a_power_cut() -> None:
    disk = SimDisk()
    ledger = ErasureLedger(disk.mount(), "/d")
    ledger.append(receipt())
    ledger.begin(begun(2))
    disk.crash(mode="none", names="none")
    again = ErasureLedger(disk.mount(), "/d")
    assert again.receipts() == [receipt()]
    assert again.begun() == [begun(2)]


@pytest.mark.parametrize("op", ["fsync", "sync_dir"])
def test_a_note_that_the_disk_refused_does_not_go_on_after_a_restart(op: Op) -> None:
    faults = FaultFs(SimDisk().mount())
    ledger = ErasureLedger(faults, "/d")
    ledger.append(receipt())
    faults.fail(op, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        ledger.begin(begun(2))
    assert ledger.begun() == []


def test_a_note_that_outlived_its_receipt_counts_no_more_and_is_cleared(
    fs: Fs, ledger: ErasureLedger
) -> None:
    ledger.append(receipt())
    ledger.begin(begun(1))
    fs.open(f"{ledger.directory}/0000000000000003.json.tmp", write=True, create=True).close()
    assert ledger.begun() == []
    ledger.clear_temporary()
    assert fs.listdir(ledger.directory) == ["0000000000000001.json"]
    ledger.clear_temporary()


def test_receipts_are_a_chain_and_travel_as_files(fs: Fs, ledger: ErasureLedger) -> None:
    for entry in chain(3):
        ledger.append(entry)
    assert ledger.receipts() == chain(3)
    other = ErasureLedger(fs, "/other")
    other.restore(ledger.files())
    assert other.receipts() == chain(3)
    assert erasures.erased_seqs(chain(2)) == {10: [(3, 5), (9, 9), (3, 5), (9, 9)]}


def test_a_changed_byte_of_a_receipt_is_noticed() -> None:
    data = erasures.encode(receipt())
    for at in range(len(data)):
        changed = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        with pytest.raises(BadLedger):
            erasures.verified([(1, changed)])


def test_a_receipt_that_was_forged_or_taken_out_is_noticed() -> None:
    files = [(entry.number, erasures.encode(entry)) for entry in chain(3)]
    with pytest.raises(BadLedger, match="receipt 3 does not follow"):
        erasures.verified([files[0], files[2]])
    forged = msgspec.structs.replace(chain(1)[0], deleted=0)
    with pytest.raises(BadLedger, match="receipt 2 does not follow"):
        erasures.verified([(1, erasures.encode(forged)), *files[1:]])
    with pytest.raises(BadLedger, match="receipt 1 does not follow"):
        erasures.verified([(1, files[1][1])])
    with pytest.raises(BadLedger, match="cannot be read"):
        erasures.verified([(1, erasures.encode(begun()))])


def test_a_note_under_another_name_is_refused(fs: Fs, ledger: ErasureLedger) -> None:
    ledger.begin(begun(1))
    fs.rename(
        f"{ledger.directory}/0000000000000001.begun", f"{ledger.directory}/0000000000000002.begun"
    )
    with pytest.raises(BadLedger, match="of erasure 1"):
        ledger.begun()


def test_a_receipt_has_no_tag_but_tells_whether_it_is_of_one() -> None:
    assert b"user-7" not in erasures.encode(receipt())
    tag = receipt().scope.tag
    assert tag is not None
    assert tag.is_of("user-7/cart")
    assert not tag.is_of("user-7")
    whole = TagHash.of("user-7", salt=bytes(16), is_prefix=False)
    assert whole.is_of("user-7")
    assert not whole.is_of("user-7/cart")


def test_a_scope_covers_what_its_delete_would_have_removed() -> None:
    before = ErasureScope(before_seq=9)
    assert before.covers(8, None)
    assert not before.covers(9, "user-7/cart")
    both = ErasureScope(before_seq=9, tag=SCOPE.tag)
    assert both.covers(8, "user-7/cart")
    assert not both.covers(8, None)
    assert not both.covers(9, "user-7/cart")

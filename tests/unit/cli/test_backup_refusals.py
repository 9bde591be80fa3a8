"""What `topics backup` and `topics restore` refuse, because erased or good records would suffer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.runner import topics

from topics.storage.erasures import Begun, ErasureLedger, ErasureScope
from topics.storage.fs import RealFs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three records, with a backup of it in `backup`."""
    made = tmp_path / "log"
    assert topics("create", "orders", "--dir", made).code == 0
    for text in ("one", "two", "three"):
        assert topics("produce", "orders", "-m", text, "--dir", made).code == 0
    assert topics("backup", made, tmp_path / "backup").code == 0
    return made


def erased(directory: Path, before: int) -> None:
    done = topics("erase", "orders", "--before-seq", before, "--dir", directory, "--yes")
    assert done.code == 0, done


def test_a_ledger_of_another_log_takes_out_no_record(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert topics("create", "orders", "--dir", other).code == 0
    assert topics("produce", "orders", "-m", "x", "--dir", other).code == 0
    erased(other, 3)
    answer = topics("restore", tmp_path / "backup", tmp_path / "new", "--ledger", other)
    assert answer.code != 0
    assert "of another log" in answer.err
    assert not (tmp_path / "new").exists()


def test_a_ledger_that_is_no_data_directory_is_refused(log: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nope", tmp_path / "backup", ""):
        answer = topics("restore", tmp_path / "backup", tmp_path / "new", "--ledger", wrong)
        assert answer.code != 0
        assert "--ledger takes a data directory" in answer.err
    assert not (tmp_path / "new").exists()


def test_an_erasure_that_is_under_way_in_the_ledger_is_applied(log: Path, tmp_path: Path) -> None:
    erased(log, 2)
    ledger = ErasureLedger(RealFs(), str(log))
    (receipt,) = ledger.receipts()
    note = Begun(
        number=2,
        store_id=receipt.store_id,
        topic="orders",
        topic_id=receipt.topic_id,
        scope=ErasureScope(before_seq=3),
        begun_ms=receipt.begun_ms,
        deleted=1,
        bound=3,
        delete_version=receipt.delete_version + 1,
        erased=[(1, 2)],
    )
    ledger.begin(note)
    answer = topics("restore", tmp_path / "backup", tmp_path / "new", "--ledger", log)
    assert answer.code == 0, answer.err
    left = topics("read", "orders", "--dir", tmp_path / "new").out
    assert "three" in left
    assert "one" not in left
    assert "two" not in left
    told = topics("backup", log, tmp_path / "backup2")
    assert "erasure 2 is under way" in told.err


def test_a_damaged_receipt_is_told_by_the_backup_and_by_the_restore(
    log: Path, tmp_path: Path
) -> None:
    erased(log, 2)
    receipt = Path(ErasureLedger(RealFs(), str(log)).path(1))
    receipt.write_bytes(receipt.read_bytes() + b"x")
    told = topics("backup", log, tmp_path / "backup2")
    assert told.code == 1
    assert "damaged: the ledger of erasures: receipt 1 is damaged" in told.out
    answer = topics("restore", tmp_path / "backup2", tmp_path / "new")
    assert answer.code != 0
    assert "receipt 1 is damaged; without its receipts" in answer.err


def test_a_backup_inside_the_log_is_refused(log: Path) -> None:
    for inside in (log, log / "copy"):
        answer = topics("backup", log, inside)
        assert answer.code != 0
        assert "choose a directory elsewhere" in answer.err


def test_a_restore_over_the_root_directory_is_refused(log: Path, tmp_path: Path) -> None:
    answer = topics("restore", tmp_path / "backup", "/")
    assert answer.code != 0
    assert "name one that does not exist yet" in answer.err


def test_backups_without_a_pause_are_refused(log: Path, tmp_path: Path) -> None:
    answer = topics("backup", log, tmp_path / "backup", "--every", "0s")
    assert answer.code != 0
    assert "--every takes 1s or longer" in answer.err

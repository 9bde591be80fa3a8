"""What a verification reports, and how its parts add up."""

from topics.errors import RefusedToOpen
from topics.storage.findings import Account, Finding, Report, files_below
from topics.testing import SimDisk


def test_a_finding_names_as_much_of_its_place_as_is_known() -> None:
    assert str(Finding("/f", "is gone")) == "/f: is gone"
    assert str(Finding("/f", "rot", offset=0)) == "/f at 0: rot"
    assert str(Finding("/f", "rot", topic="t")) == "/f, topic t: rot"
    assert str(Finding("/f", "rot", offset=7, topic="t", seq=3)) == "/f at 7, topic t, seq 3: rot"


def test_an_account_adds_up_when_every_written_seq_is_live_deleted_or_lost() -> None:
    account = Account("t", 20, 8, 3, 2, 1, 1, 4, 1)
    assert account.written == 15
    assert account.adds_up
    assert not Account("t", 20, 9, 3, 2, 1, 1, 4, 1).adds_up


def test_what_was_found_elsewhere_counts_here_too() -> None:
    disk = SimDisk()
    disk.put("/f", b"12345")
    told: list[int] = []
    whole, part = Report(disk, told.append), Report(disk)
    part.done_with("/f")
    part.note_record("t")
    part.wrong("/f", "rot", offset=2)
    part.notes.append("a remark")
    part.accounts.append(Account("t", 1, 1, 0, 0, 0, 0, 0, 0))
    part.frames = 3
    whole.note_record("t")
    whole.add(part)
    assert (whole.files, whole.bytes, whole.frames, whole.records) == (1, 5, 3, 2)
    assert (whole.damage, whole.notes) == ([Finding("/f", "rot", 2)], ["a remark"])
    assert whole.accounts == part.accounts
    assert whole.records_of == {"t": 2}
    assert told == [5]


def test_a_place_that_is_known_to_be_bad_is_named_once() -> None:
    report = Report(SimDisk())
    report.wrong("/f", "rot", offset=2)
    report.refused(RefusedToOpen("wal_corrupt", message="/f: no", file="/f", offset=2))
    report.refused(RefusedToOpen("wal_corrupt", message="/f: no", file="/f", offset=3))
    assert report.damage == [Finding("/f", "rot", 2), Finding("/f", "no", 3)]


def test_every_file_is_listed_however_deep_it_lies() -> None:
    disk = SimDisk()
    for path in ("/a/2", "/a/b/c/1", "/a/1"):
        disk.put(path, b"")
    disk.mkdirs("/a/empty")
    assert list(files_below(disk, "/a")) == ["/a/1", "/a/2", "/a/b/c/1"]

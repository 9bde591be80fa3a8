"""A backup or a restore that dies at any step: nothing that counts is lost, the next run finishes.

At each step the process dies (what it wrote stays visible) or the power goes (what was not synced
may be lost). Afterwards the destination restores exactly what it covers, and the next run ends.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

import topics
from topics.engine.backup import keeping
from topics.engine.backup.destination import BackupRefused, Destination
from topics.engine.backup.restoring import Restore, RestoreTarget
from topics.engine.backup.taking import Backup
from topics.errors import ObjectStoreFailed
from topics.storage import crashpoints
from topics.storage.backup.manifest import ROOT, BadBackup
from topics.storage.erasures import ErasureLedger
from topics.storage.findings import files_below
from topics.storage.fs import read_file
from topics.storage.objects.directory import DirectoryObjects
from topics.testing import ManualClock, SimDisk
from topics.testing._mount import PowerOff

BACKUP_POINTS = sorted(p for p in crashpoints.NAMES if p.startswith(("backup.", "object.")))
RESTORE_POINTS = sorted(p for p in crashpoints.NAMES if p.startswith("restore."))
PRUNE_POINTS = sorted(p for p in crashpoints.NAMES if p.startswith("prune."))
ENDS = ["kill", "power"]


class Died(BaseException):
    """The process is no more."""


class World:
    """A log with history, on a disk that dies on request."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock()
        self.write(60)

    def write(self, count: int) -> None:
        with topics.open("/data", fs=self.disk, clock=self.clock, segment_max_events=20) as log:
            for number in range(count):
                log.append("orders", [{"data": number, "tag": "odd" if number % 2 else "even"}])
            log.checkpoint()
            log.delete("orders", match="odd")
        self.clock.advance(1000)

    def backup(self) -> Backup:
        self.clock.advance(120_000)  # a session that died is not waited for
        dest = Destination(DirectoryObjects(self.disk.mount(), "/dest"), self.clock)
        backup = Backup(self.disk.mount(), "/data", dest, clock=self.clock)
        backup.begin()
        return backup

    def restore(self, directory: str, *, mounted: bool = False) -> list[object]:
        fs = self.disk.mount() if mounted else self.disk
        source = Destination(DirectoryObjects(fs, "/dest"), self.clock)
        Restore(source, fs, directory, RestoreTarget(), clock=self.clock).run()
        return self.held(directory)

    def held(self, directory: str) -> list[object]:
        with topics.open(directory, fs=self.disk, clock=self.clock) as log:
            return [each.data for each in log.scan("orders") if isinstance(each, topics.Record)]

    def dying(self, point: str, nth: int, end: str) -> crashpoints.Hook:
        left = nth

        def hook(reached: str) -> None:
            nonlocal left
            left -= reached == point
            if not left:
                left = -1
                if end == "kill":
                    self.disk.kill()
                else:
                    self.disk.crash(seed=nth)
                raise Died

        return hook


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", BACKUP_POINTS)
def test_br01_a_backup_that_dies_anywhere_leaves_what_it_had_and_is_finished_later(
    point: str, nth: int, end: str
) -> None:
    world = World()
    first = world.backup()
    first.run()
    first.end()
    before = world.held("/data")
    world.write(50)
    after = world.held("/data")
    assert after != before
    with (
        crashpoints.installed(world.dying(point, nth, end)),
        pytest.raises((Died, PowerOff)) if nth == 1 else suppress(Died, PowerOff),
    ):
        backup = world.backup()
        backup.run()
        backup.end()
    assert world.restore("/early") in (before, after)
    backup = world.backup()
    backup.run()
    backup.end()
    assert world.restore("/late") == after
    source = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
    assert keeping.verify(source).damaged == []


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_br02_a_restore_that_dies_anywhere_leaves_all_or_nothing(point: str, end: str) -> None:
    world = World()
    backup = world.backup()
    backup.run()
    backup.end()
    held = world.held("/data")
    with (
        crashpoints.installed(world.dying(point, 1, end)),
        pytest.raises((Died, PowerOff)),
    ):
        world.restore("/new", mounted=True)
    if world.disk.exists("/new"):
        assert world.held("/new") == held
    else:
        assert world.restore("/new") == held
    assert not world.disk.exists("/new.restoring")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("point", PRUNE_POINTS)
def test_br03_a_prune_that_dies_anywhere_removes_nothing_that_counts(point: str, end: str) -> None:
    world = World()
    for _ in range(3):
        backup = world.backup()
        backup.run()
        backup.end()
        world.write(30)
    backup = world.backup()
    backup.run()
    held = world.held("/data")
    with crashpoints.installed(world.dying(point, 1, end)), pytest.raises((Died, PowerOff)):
        keeping.prune(backup._dest, keep_from_ms=world.clock.now_ms())
    assert world.restore("/new") == held
    backup = world.backup()
    backup.run()
    assert keeping.prune(backup._dest, keep_from_ms=world.clock.now_ms()).objects > 0
    root = backup._dest.require()
    wanted = {ref.name for ref in keeping.refs_of(root, backup._dest.segments(root))}
    listed = {each.name for each in backup._dest.objects.list("objects")}
    assert listed == wanted
    assert world.restore("/newer") == held


def test_br04_of_two_backups_to_one_destination_the_second_is_refused() -> None:
    world = World()
    first = world.backup()
    first.run()
    second = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
    with pytest.raises(BackupRefused, match=r"another backup .* writes to"):
        Backup(world.disk, "/data", second, clock=world.clock).begin()
    world.clock.advance(120_000)
    other = Backup(world.disk, "/data", second, clock=world.clock)
    other.begin()  # the first one has not been seen for long
    world.write(10)
    with pytest.raises(BackupRefused, match=r"another backup .* writes to"):
        first.run()
    other.run()
    assert world.restore("/new") == world.held("/data")


def test_br05_a_backup_with_objects_missing_or_damaged_is_told_before_anything_is_written() -> None:
    world = World()
    backup = world.backup()
    backup.run()
    backup.end()
    objects = DirectoryObjects(world.disk, "/dest")
    for each in list(objects.list("objects")):
        data = objects.read(each.name).data
        source = Destination(objects, world.clock)
        objects.put(each.name, data[:-1])
        with pytest.raises(BadBackup):
            world.restore("/new")
        with suppress(BadBackup):  # the list of segments itself
            assert keeping.verify(source).damaged
        objects.put(each.name, bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(BadBackup):
            world.restore("/new")
        objects.put(each.name, data)
        assert not world.disk.exists("/new")
    root = objects.read(ROOT).data
    objects.put(ROOT, root.replace(b'"version"', b'"Version"'))
    with pytest.raises(BadBackup, match="checksum"):
        world.restore("/new")
    objects.put(ROOT, root)
    assert world.restore("/new") == world.held("/data")


@pytest.mark.parametrize(
    ("point", "nth"),
    [("backup.publish", 1), ("backup.publish", 2), *(("backup.object", n) for n in range(1, 7))],
)
def test_an_outage_of_the_destination_leaves_the_same_session_able_to_finish(
    point: str, nth: int
) -> None:
    world = World()
    backup = world.backup()
    backup.run()
    world.write(50)
    left = nth

    def hook(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if not left:
            left = -1
            raise ObjectStoreFailed("/dest", doing="put", reason="no answer", retryable=True)

    with crashpoints.installed(hook), pytest.raises(ObjectStoreFailed):
        backup.run()
    backup.run()
    keeping.prune(backup._dest, keep_from_ms=world.clock.now_ms())
    assert world.restore("/new") == world.held("/data")


def test_a_session_that_prunes_never_names_what_it_removed_again() -> None:
    world = World()
    backup = world.backup()
    for _ in range(5):
        world.write(30)
        backup.run()
        keeping.prune(backup._dest, keep_from_ms=world.clock.now_ms())
        source = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
        assert keeping.verify(source).damaged == []
        with topics.open("/data", fs=world.disk, clock=world.clock) as log:
            log.delete("orders", before_seq=log.state("orders").head_seq - 20)
            log.checkpoint()
    world.write(30)
    backup.run()
    source = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
    assert keeping.verify(source).damaged == []
    assert world.restore("/new") == world.held("/data")


def test_a_backup_that_names_a_directory_elsewhere_writes_nothing() -> None:
    world = World()
    backup = world.backup()
    backup.run()
    root = backup._root
    files = tuple(msgspec.structs.replace(each, group="../../elsewhere") for each in root.log)
    backup._dest.publish(msgspec.structs.replace(root, log=files))
    with pytest.raises(BadBackup, match=r"names '../../elsewhere' as a group of log files"):
        world.restore("/new")
    assert not [each for each in files_below(world.disk, "/") if "elsewhere" in each]


def test_a_log_that_was_closed_before_its_last_copy_comes_back_without_a_gap() -> None:
    world = World()
    world.backup().run()
    world.write(10)
    world.backup().run()
    source = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
    found = Restore(source, world.disk, "/new", RestoreTarget(), clock=world.clock).run()
    assert found.gaps == {}
    assert not found.new_epoch
    assert world.held("/new") == world.held("/data")


@pytest.mark.parametrize("is_backed_up_after", [True, False])
def test_br07_a_restore_to_a_time_before_an_erasure_does_not_bring_the_erased_back(
    is_backed_up_after: bool,
) -> None:
    world = World()
    with topics.open("/data", fs=world.disk, clock=world.clock, segment_max_events=20) as log:
        for number in range(40):
            log.append("orders", [{"data": f"secret-{number}", "tag": "anna"}])
            log.append("orders", [{"data": f"plain-{number}"}])
        log.checkpoint()
        log.append("orders", [{"data": "secret-last", "tag": "anna"}])
    world.clock.advance(1000)
    backup = world.backup()
    backup.run()
    before_ms = world.clock.now_ms() - 2
    world.clock.advance(1000)
    with topics.open("/data", fs=world.disk, clock=world.clock, segment_max_events=20) as log:
        log.erase("orders", match="anna")
        kept = [each.data for each in log.scan("orders") if isinstance(each, topics.Record)]
    if is_backed_up_after:
        backup.run()
    backup.end()
    receipts = [] if is_backed_up_after else ErasureLedger(world.disk, "/data").files()
    source = Destination(DirectoryObjects(world.disk, "/dest"), world.clock)
    restored = Restore(
        source,
        world.disk,
        "/new",
        RestoreTarget(at_ms=before_ms),
        clock=world.clock,
        more_receipts=receipts,
    ).run()
    assert restored.erased == 41
    assert world.held("/new") == kept
    for path in files_below(world.disk, "/new"):
        assert b"secret-" not in read_file(world.disk, path), path


def test_br08_an_erased_record_that_rotted_before_its_backup_comes_back_as_nothing() -> None:
    world = World()
    with topics.open("/data", fs=world.disk, clock=world.clock, segment_max_events=20) as log:
        for number in range(40):
            log.append("people", [{"data": f"secret-{number:02d}", "tag": "anna"}])
            log.append("people", [{"data": "plain"}])
        log.checkpoint()
    rotten = []
    for path in files_below(world.disk, "/data/topics"):
        data = read_file(world.disk, path)
        for number, field in enumerate((0, 5, 6, 14, 30, 34, 42, 44, 52)):
            at = data.find(f'"secret-{number:02d}"'.encode())
            if path.endswith(".data") and at >= 0:
                rotten.append((path, at - 46 + field))  # header, tag and length come before
    assert len(rotten) == 9
    for path, at in rotten:
        world.disk.flip(path, at, 0x40)
    backup = world.backup()
    assert backup.run().damaged
    backup.end()
    for path, at in rotten:
        world.disk.flip(path, at, 0x40)
    with topics.open("/data", fs=world.disk, clock=world.clock, segment_max_events=20) as log:
        log.erase("people", match="anna")
    restored = Restore(
        Destination(DirectoryObjects(world.disk, "/dest"), world.clock),
        world.disk,
        "/new",
        RestoreTarget(),
        clock=world.clock,
        more_receipts=ErasureLedger(world.disk, "/data").files(),
    ).run()
    assert restored.erased == 40
    for path in files_below(world.disk, "/new/topics"):
        assert b"ecret-" not in read_file(world.disk, path), path
    with topics.open("/new", fs=world.disk, clock=world.clock, segment_max_events=20) as log:
        found = [each.data for each in log.scan("people") if isinstance(each, topics.Record)]
    assert found == ["plain"] * 40

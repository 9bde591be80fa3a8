"""SimDisk keeps what was synced, forgets what was not, and lies only when told to."""

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.storage.fs import File, replace_file, write_all
from topics.testing import SECTOR, CrashMode, PowerOff, SimDisk

MODES: tuple[CrashMode, ...] = ("none", "all", "prefix", "subset", "zero", "garble")
PATH = "/data/log"


def new_disk(*, capacity: int | None = None) -> SimDisk:
    disk = SimDisk(capacity=capacity)
    disk.mkdirs("/data")
    disk.sync_dir("/")
    return disk


def synced_file(disk: SimDisk, data: bytes, path: str = PATH) -> File:
    """A file that is durable with its name."""
    file = disk.open(path, write=True, create=True)
    write_all(file, data, 0)
    file.fdatasync()
    disk.sync_dir("/data")
    return file


# Power cuts and contents.


@pytest.mark.parametrize("mode", MODES)
def test_synced_bytes_survive_every_kind_of_crash(mode: CrashMode) -> None:
    for seed in range(20):
        disk = new_disk()
        file = synced_file(disk, b"a" * 3000)
        file.pwrite(b"b" * 3000, 3000)
        disk.crash(seed, mode)
        assert disk.peek(PATH)[:3000] == b"a" * 3000
        assert disk.peek(PATH) == disk.peek_durable(PATH)


def test_mode_none_loses_and_mode_all_keeps_every_pending_change() -> None:
    for mode, expected in (("none", b"abc"), ("all", b"aX")):
        disk = new_disk()
        file = synced_file(disk, b"abc")
        file.pwrite(b"XY", 1)
        file.truncate(2)
        disk.crash(0, "none" if mode == "none" else "all")
        assert disk.peek(PATH) == expected


def test_mode_prefix_leaves_a_prefix_that_may_end_inside_a_write() -> None:
    pending = bytes(range(1, 251)) * 8
    lengths = set()
    for seed in range(60):
        disk = new_disk()
        file = synced_file(disk, b"")
        for start in range(0, 2000, 500):
            file.pwrite(pending[start : start + 500], start)
        disk.crash(seed, "prefix")
        left = disk.peek(PATH)
        assert pending.startswith(left)
        lengths.add(len(left))
    assert any(length % 500 for length in lengths)
    assert any(length and length % SECTOR == 0 for length in lengths)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7, 8, 99])
def test_mode_prefix_cuts_at_an_exact_byte_on_request(cut: int) -> None:
    disk = new_disk()
    file = synced_file(disk, b"")
    file.pwrite(b"abcd", 0)
    file.pwrite(b"efgh", 4)
    disk.crash(0, "prefix", cut=cut)
    assert disk.peek(PATH) == b"abcdefgh"[:cut]


def test_a_torn_write_into_a_preallocated_file_keeps_its_size() -> None:
    disk = new_disk()
    file = synced_file(disk, b"")
    file.fallocate(1000)
    file.fsync()
    file.pwrite(b"abcd", 0)
    disk.crash(0, "prefix", cut=2)
    assert disk.peek(PATH) == b"ab" + bytes(998)


def test_mode_subset_can_keep_a_later_sector_without_an_earlier_one() -> None:
    outcomes = set()
    for seed in range(60):
        disk = new_disk()
        file = synced_file(disk, bytes(3 * SECTOR))
        file.pwrite(b"x" * 3 * SECTOR, 0)
        disk.crash(seed, "subset")
        left = disk.peek(PATH)
        sectors = [left[at : at + SECTOR] for at in range(0, len(left), SECTOR)]
        assert all(sector in (bytes(SECTOR), b"x" * SECTOR) for sector in sectors)
        outcomes.add("".join("x" if sector[0] else "." for sector in sectors))
    assert outcomes == {"...", "..x", ".x.", ".xx", "x..", "x.x", "xx.", "xxx"}


def test_mode_subset_never_mixes_states_a_sector_did_not_go_through() -> None:
    for seed in range(40):
        disk = new_disk()
        file = synced_file(disk, b"....")
        file.pwrite(b"a", 0)
        file.pwrite(b"b", 1)
        file.pwrite(b"c", 0)
        disk.crash(seed, "subset")
        assert disk.peek(PATH) in (b"....", b"a...", b"ab..", b"cb..")


def test_mode_zero_blanks_one_sector_of_the_pending_bytes_only() -> None:
    blanked = set()
    for seed in range(40):
        disk = new_disk()
        file = synced_file(disk, b"a" * 100)
        file.pwrite(b"b" * 1000, 100)
        disk.crash(seed, "zero")
        left = disk.peek(PATH)
        assert len(left) == 1100
        assert left.startswith(b"a" * 100)
        blanked.add((left.find(b"\0"), left.count(b"\0")))
    assert blanked == {(100, 412), (512, 512), (1024, 76)}


def test_mode_garble_flips_one_bit_of_the_last_pending_write() -> None:
    for seed in range(20):
        disk = new_disk()
        file = synced_file(disk, b"a" * 10)
        file.pwrite(b"b" * 10, 10)
        file.pwrite(b"c" * 10, 20)
        disk.crash(seed, "garble")
        left = disk.peek(PATH)
        assert left[:20] == b"a" * 10 + b"b" * 10
        flipped = int.from_bytes(left[20:]) ^ int.from_bytes(b"c" * 10)
        assert flipped.bit_count() == 1


def test_syncing_one_file_does_not_save_another() -> None:
    disk = new_disk()
    first, second = synced_file(disk, b""), synced_file(disk, b"", "/data/other")
    first.pwrite(b"one", 0)
    second.pwrite(b"two", 0)
    first.fdatasync()
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"one"
    assert disk.peek("/data/other") == b""


def test_a_hole_survives_like_any_other_content() -> None:
    disk = new_disk()
    file = synced_file(disk, b"ab")
    file.pwrite(b"z", 2000)
    file.fsync()
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"ab" + bytes(1998) + b"z"


@given(seed=st.integers(0, 2**32), mode=st.sampled_from(MODES))
def test_the_same_seed_gives_the_same_disk(seed: int, mode: CrashMode) -> None:
    def outcome() -> dict[str, bytes]:
        disk = new_disk()
        for name in "abc":
            file = disk.open(f"/data/{name}", write=True, create=True)
            file.pwrite(name.encode() * 2000, 0)
        disk.crash(seed, mode)
        return disk.contents()

    assert outcome() == outcome()


# Power cuts and names.


def test_a_name_is_lost_until_its_directory_is_synced() -> None:
    disk = new_disk()
    file = disk.open(PATH, write=True, create=True)
    file.pwrite(b"abc", 0)
    file.fsync()
    disk.crash(0, "all", names="none")
    assert disk.paths() == []


def test_a_durable_name_does_not_make_its_bytes_durable() -> None:
    disk = new_disk()
    file = disk.open(PATH, write=True, create=True)
    file.pwrite(b"abc", 0)
    disk.sync_dir("/data")
    disk.crash(0, "none")
    assert disk.contents() == {PATH: b""}


def test_syncing_a_directory_does_not_save_its_own_name() -> None:
    disk = SimDisk()
    disk.mkdirs("/data/deep")
    synced_file(disk, b"abc", "/data/deep/log")
    disk.sync_dir("/data/deep")
    disk.crash(0, "all", names="none")
    assert disk.listdir("/") == []


def test_names_survive_as_an_ordered_prefix_per_directory() -> None:
    outcomes = set()
    for seed in range(60):
        disk = new_disk()
        for name in "abc":
            disk.open(f"/data/{name}", write=True, create=True).close()
        disk.unlink("/data/a")
        disk.crash(seed, "all")
        outcomes.add("".join(disk.listdir("/data")))
    assert outcomes == {"", "a", "ab", "abc", "bc"}


def test_an_unlink_may_come_undone_until_its_directory_is_synced() -> None:
    disk = new_disk()
    synced_file(disk, b"abc")
    disk.unlink(PATH)
    disk.crash(0, "all", names="none")
    assert disk.peek(PATH) == b"abc"
    disk.unlink(PATH)
    disk.sync_dir("/data")
    disk.crash(0, "all", names="none")
    assert disk.paths() == []


def test_a_crash_leaves_the_old_or_the_new_file_of_a_rename_never_neither() -> None:
    outcomes = set()
    for seed in range(40):
        disk = new_disk()
        synced_file(disk, b"old")
        synced_file(disk, b"new", "/data/log.tmp")
        disk.rename("/data/log.tmp", PATH)
        disk.crash(seed, "none")
        outcomes.add(tuple(sorted(disk.contents().items())))
    assert outcomes == {
        ((PATH, b"old"), ("/data/log.tmp", b"new")),
        ((PATH, b"new"),),
    }


def test_a_rename_between_directories_is_one_step() -> None:
    outcomes = set()
    for seed in range(80):
        disk = new_disk()
        disk.mkdirs("/other")
        disk.sync_dir("/")
        synced_file(disk, b"abc")
        disk.open("/data/before", write=True, create=True).close()
        disk.rename(PATH, "/other/log")
        disk.open("/other/after", write=True, create=True).close()
        disk.crash(seed, "none")
        outcomes.add(tuple(disk.paths()))
    assert outcomes == {
        ("/data/log",),
        ("/data/before", "/data/log"),
        ("/data/before", "/other/log"),
        ("/data/before", "/other/after", "/other/log"),
    }


@pytest.mark.parametrize("synced", ["/data", "/other"])
def test_syncing_either_directory_makes_a_rename_between_them_durable(synced: str) -> None:
    disk = new_disk()
    disk.mkdirs("/other")
    disk.sync_dir("/")
    synced_file(disk, b"abc")
    disk.rename(PATH, "/other/log")
    disk.sync_dir(synced)
    disk.crash(0, "none", names="none")
    assert disk.contents() == {"/other/log": b"abc"}


def test_a_removed_directory_takes_its_contents_with_it() -> None:
    disk = new_disk()
    disk.mkdirs("/data/deep")
    disk.sync_dir("/data")
    disk.put("/data/deep/log", b"abc")
    disk.unlink("/data/deep/log")
    disk.rmdir("/data/deep")
    disk.sync_dir("/data")
    disk.crash(0, "all", names="none")
    assert disk.listdir("/data") == []


def test_replace_file_is_all_or_nothing_at_every_moment() -> None:
    for mode in MODES:
        for seed in range(10):
            disk = new_disk()
            replace_file(disk, "/data/CURRENT", b"old")
            replace_file(disk, "/data/CURRENT", b"new")
            disk.crash(seed, mode)
            assert disk.contents() == {"/data/CURRENT": b"new"}


# Programs and their ends.

OLD_HANDLE_CALLS: dict[str, Callable[[File], object]] = {
    "pread": lambda file: file.pread(1, 0),
    "pwrite": lambda file: file.pwrite(b"x", 0),
    "truncate": lambda file: file.truncate(0),
    "fallocate": lambda file: file.fallocate(9),
    "fdatasync": lambda file: file.fdatasync(),
    "fsync": lambda file: file.fsync(),
    "size": lambda file: file.size(),
}


@pytest.mark.parametrize("call", sorted(OLD_HANDLE_CALLS))
@pytest.mark.parametrize("end", ["crash", "kill"])
def test_a_handle_of_a_dead_program_is_powerless(call: str, end: str) -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    if end == "crash":
        disk.crash()
    else:
        disk.kill()
    with pytest.raises(PowerOff):
        OLD_HANDLE_CALLS[call](file)
    file.close()
    assert disk.peek(PATH) == b"abc"


def test_an_io_error_handler_does_not_catch_the_end_of_power() -> None:
    assert not issubclass(PowerOff, Exception)


def test_a_mount_dies_as_a_whole() -> None:
    disk = new_disk()
    synced_file(disk, b"abc")
    program = disk.mount()
    assert program.listdir("/data") == ["log"]
    disk.kill()
    for call in (
        lambda: program.unlink(PATH),
        lambda: program.open(PATH),
        lambda: program.rename(PATH, "/data/x"),
        lambda: program.mkdirs("/x"),
        lambda: program.rmdir("/x"),
        lambda: program.listdir("/"),
        lambda: program.exists("/"),
        lambda: program.size(PATH),
        lambda: program.sync_dir("/"),
        lambda: program.lock("/l"),
        program.boot_id,
    ):
        with pytest.raises(PowerOff):
            call()
    assert disk.mount().listdir("/data") == ["log"]


def test_a_crash_changes_the_boot_id_and_a_kill_does_not() -> None:
    disk = new_disk()
    first = disk.boot_id()
    disk.kill()
    assert disk.boot_id() == first
    disk.crash()
    assert disk.boot_id() != first


def test_a_kill_keeps_pending_bytes_visible_and_still_at_risk() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    file.pwrite(b"def", 3)
    disk.kill()
    assert disk.peek(PATH) == b"abcdef"
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"abc"


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_a_lock_dies_with_its_program(end: str) -> None:
    disk = new_disk()
    held = disk.lock("/data/.lock")
    disk.sync_dir("/data")
    if end == "crash":
        disk.crash()
    else:
        disk.kill()
    successor = disk.lock("/data/.lock")
    held.close()
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    successor.close()


# Lies.


def test_a_lying_sync_reports_success_and_saves_nothing() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    disk.fsync_lies()
    file.pwrite(b"def", 3)
    file.fdatasync()
    assert disk.peek_durable(PATH) == b"abc"
    disk.honest()
    file.fsync()
    assert disk.peek_durable(PATH) == b"abcdef"


def test_a_lie_can_be_limited_to_some_files() -> None:
    disk = new_disk()
    first, second = synced_file(disk, b""), synced_file(disk, b"", "/data/other")
    disk.fsync_lies("*/other")
    for file in (first, second):
        file.pwrite(b"x", 0)
        file.fsync()
    disk.crash(0, "none")
    assert disk.contents() == {PATH: b"x", "/data/other": b""}


def test_a_lie_goes_by_the_name_a_file_has_at_that_moment() -> None:
    disk = new_disk()
    file = synced_file(disk, b"")
    disk.fsync_lies("/moved/other")
    disk.rename(PATH, "/data/other")
    disk.rename("/data", "/moved")
    file.pwrite(b"x", 0)
    file.fsync()
    assert disk.peek_durable("/moved/other") == b""


def test_a_late_sync_saves_what_an_earlier_one_should_have() -> None:
    disk = new_disk()
    file = synced_file(disk, b"")
    disk.fsync_late(2)
    durable = []
    for index, byte in enumerate((b"a", b"b", b"c", b"d")):
        file.pwrite(byte, index)
        file.fdatasync()
        durable.append(disk.peek_durable(PATH))
    assert durable == [b"", b"", b"a", b"ab"]
    disk.honest()
    file.fdatasync()
    assert disk.peek_durable(PATH) == b"abcd"


def test_fsyncgate_fails_once_then_hides_the_loss_until_power_is_cut() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    file.pwrite(b"def", 3)
    disk.fsyncgate()
    with pytest.raises(OSError, match="Input/output") as caught:
        file.fdatasync()
    assert caught.value.errno == errno.EIO
    file.fdatasync()
    assert disk.peek(PATH) == b"abcdef"
    disk.crash(0, "all")
    assert disk.peek(PATH) == b"abc"


def test_bytes_written_again_after_fsyncgate_are_safe() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    file.pwrite(b"def", 3)
    disk.fsyncgate()
    with pytest.raises(OSError, match="Input/output"):
        file.fdatasync()
    disk.kill()
    repair = disk.open(PATH, write=True)
    repair.pwrite(repair.pread(3, 3), 3)
    repair.fsync()
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"abcdef"


def test_without_powersafe_overwrite_a_synced_neighbour_sector_is_ruined() -> None:
    disk = new_disk()
    disk.psow_off()
    file = synced_file(disk, b"a" * 2048)
    file.pwrite(b"b" * 10, 1030)
    disk.crash(0, "none")
    left = disk.peek(PATH)
    assert left[:512] == b"a" * 512
    assert left[512:1024] != b"a" * 512
    assert left[1024:] == b"a" * 1024


def test_without_powersafe_overwrite_a_write_at_the_start_ruins_what_follows() -> None:
    disk = new_disk()
    disk.psow_off()
    file = synced_file(disk, b"a" * 1536)
    file.pwrite(b"b" * 10, 0)
    disk.crash(0, "all")
    left = disk.peek(PATH)
    assert left[:512] == b"b" * 10 + b"a" * 502
    assert left[512:1024] != b"a" * 512
    assert left[1024:] == b"a" * 512


def test_a_size_may_persist_before_the_data() -> None:
    disk = new_disk()
    disk.size_first()
    file = synced_file(disk, b"abc")
    file.pwrite(b"def", 3)
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"abc\0\0\0"


# Space.


def test_a_full_disk_takes_what_fits_then_refuses() -> None:
    disk = new_disk(capacity=SECTOR + 10)
    file = disk.open(PATH, write=True, create=True)
    assert file.pwrite(b"x" * 8, 0) == 8
    assert file.pwrite(b"x" * 8, 8) == 2
    with pytest.raises(OSError, match="No space") as caught:
        file.pwrite(b"x", 10)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 10
    assert file.pwrite(b"y" * 10, 0) == 10


def test_a_full_disk_refuses_allocation_and_directories_but_not_names() -> None:
    disk = new_disk(capacity=SECTOR + 100)
    file = disk.open(PATH, write=True, create=True)
    with pytest.raises(OSError, match="No space"):
        file.fallocate(101)
    assert file.size() == 0
    file.fallocate(100)
    with pytest.raises(OSError, match="No space"):
        disk.mkdirs("/more")
    assert file.pwrite(b"x" * 100, 0) == 100


def test_space_returns_when_a_file_shrinks_or_loses_its_last_user() -> None:
    disk = new_disk(capacity=SECTOR + 100)
    file = synced_file(disk, b"x" * 100)
    file.truncate(40)
    assert disk.used == SECTOR + 40
    disk.unlink(PATH)
    assert disk.used == SECTOR + 40
    file.close()
    assert disk.used == SECTOR
    synced_file(disk, b"y" * 30).close()
    synced_file(disk, b"z" * 30, "/data/tmp").close()
    disk.rename("/data/tmp", PATH)
    assert disk.used == SECTOR + 30
    disk.unlink(PATH)
    disk.rmdir("/data")
    assert disk.used == 0


def test_space_is_counted_anew_after_a_crash() -> None:
    disk = new_disk()
    file = synced_file(disk, b"x" * 100)
    file.pwrite(b"y" * 100, 100)
    disk.unlink(PATH)
    disk.crash(0, "none", names="none")
    assert disk.used == SECTOR + 100


def test_raising_the_capacity_heals_a_full_disk() -> None:
    disk = new_disk(capacity=SECTOR)
    file = disk.open(PATH, write=True, create=True)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"x", 0)
    disk.capacity = None
    assert file.pwrite(b"x", 0) == 1
    assert disk.capacity is None


def test_a_preallocated_file_costs_space_but_not_memory() -> None:
    disk = new_disk()
    file = disk.open(PATH, write=True, create=True)
    file.fallocate(1 << 40)
    assert disk.used == SECTOR + (1 << 40)
    assert file.pread(4, 1 << 39) == bytes(4)
    disk.crash(0, "all", names="all")
    assert disk.size(PATH) == 1 << 40


# Looking and tampering.


def test_poke_changes_bytes_for_readers_and_for_survivors_alike() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abcdef")
    file.pwrite(b"GHI", 6)
    disk.poke(PATH, 5, b"xyz")
    assert disk.peek(PATH) == b"abcdexyzI"
    disk.crash(0, "all")
    assert disk.peek(PATH) == b"abcdexyzI"


def test_flip_turns_one_bit_durably() -> None:
    disk = new_disk()
    synced_file(disk, b"abc")
    disk.flip(PATH, 1)
    disk.crash(0, "none")
    assert disk.peek(PATH) == b"acc"


def test_put_plants_a_durable_file_anywhere() -> None:
    disk = SimDisk()
    disk.put("/deep/down/file", b"long contents")
    disk.put("/deep/down/file", b"abc")
    disk.crash(0, "none", names="none")
    assert disk.contents() == {"/deep/down/file": b"abc"}


def test_settle_makes_everything_visible_durable() -> None:
    disk = new_disk()
    file = disk.open(PATH, write=True, create=True)
    file.pwrite(b"abc", 0)
    disk.fsyncgate()
    with pytest.raises(OSError, match="Input/output"):
        file.fsync()
    disk.settle()
    disk.crash(0, "none", names="none")
    assert disk.contents() == {PATH: b"abc"}


def test_a_clone_is_independent_and_keeps_what_is_pending() -> None:
    disk = new_disk(capacity=10_000)
    file = synced_file(disk, b"abc")
    file.pwrite(b"def", 3)
    disk.rename(PATH, "/data/moved")
    twin = disk.clone()
    disk.crash(0, "none", names="none")
    assert disk.contents() == {PATH: b"abc"}
    assert twin.contents() == {"/data/moved": b"abcdef"}
    assert (twin.capacity, twin.used) == (10_000, SECTOR + 6)
    twin.sync_dir("/data")
    twin.crash(0, "none")
    assert twin.contents() == {"/data/moved": b"abc"}


def test_restore_brings_back_the_bytes_of_a_clone() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abc")
    image = disk.clone()
    disk.flip(PATH, 0)
    disk.unlink(PATH)
    disk.restore(image)
    assert disk.contents() == image.contents() == {PATH: b"abc"}
    with pytest.raises(PowerOff):
        file.size()


def test_a_path_means_the_same_with_and_without_a_leading_slash() -> None:
    disk = new_disk()
    disk.put("data/x/../y", b"abc")
    assert disk.paths() == ["/data/y"]
    assert disk.size("./data//y") == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_pending_size_change_ends_old_or_new_in_every_mode(mode: CrashMode) -> None:
    sizes = set()
    for seed in range(20):
        disk = new_disk()
        file = synced_file(disk, b"abcdef")
        file.truncate(2)
        disk.crash(seed, mode)
        sizes.add(disk.size(PATH))
    assert sizes == {
        "none": {6},
        "prefix": {2, 6},
        "subset": {2, 6},
    }.get(mode, {2})


def test_damage_to_bytes_that_were_cut_off_again_brings_none_back() -> None:
    for mode in ("zero", "garble"):
        disk = new_disk()
        file = synced_file(disk, b"abc")
        file.pwrite(b"def", 3)
        file.truncate(3)
        disk.crash(0, "zero" if mode == "zero" else "garble")
        assert disk.peek(PATH) == b"abc"


def test_without_pending_writes_a_bad_device_ruins_nothing() -> None:
    disk = new_disk()
    disk.psow_off()
    file = synced_file(disk, b"a" * 2000)
    file.truncate(1500)
    disk.crash(0, "all")
    assert disk.peek(PATH) == b"a" * 1500


def test_an_exact_cut_applies_size_changes_before_it() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abcdef")
    file.truncate(3)
    file.pwrite(b"XYZ", 3)
    disk.crash(0, "prefix", cut=1)
    assert disk.peek(PATH) == b"abcX"


def test_poke_reaches_past_a_pending_size_change() -> None:
    disk = new_disk()
    file = synced_file(disk, b"abcdef")
    file.truncate(3)
    disk.poke(PATH, 4, b"x")
    disk.crash(0, "all")
    assert disk.peek(PATH)[4:] == b"x"

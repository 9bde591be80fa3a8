"""FORMAT, CURRENT, the lock's contents and the cold marker."""

import msgspec
import pytest

from topics.errors import RefusedToOpen
from topics.storage import identity
from topics.storage.checksum import h64
from topics.storage.identity import Current, LockOwner

STORE_ID = bytes(range(16))
FORMAT = identity.new_format(STORE_ID, created_ms=1_700_000_000_000)


def signed(line: bytes) -> bytes:
    return b"%b\n%016x" % (line, h64(line))


def refusal(data: bytes) -> RefusedToOpen:
    with pytest.raises(RefusedToOpen) as caught:
        identity.decode_format(data, file="/d/FORMAT")
    return caught.value


def test_format_names_the_store_and_every_version_on_one_line() -> None:
    line, digest = identity.encode_format(FORMAT).split(b"\n")
    assert line == (
        b'{"store_id":"000102030405060708090a0b0c0d0e0f","store":3,"wal":3,"segment":2,'
        b'"snapshot":4,"created_ms":1700000000000}'
    )
    assert int(digest, 16) == h64(line)


def test_format_comes_back_as_it_was_written() -> None:
    assert identity.decode_format(identity.encode_format(FORMAT), file="f") == FORMAT
    assert FORMAT.id_bytes == STORE_ID


def test_a_change_of_any_byte_of_format_is_refused() -> None:
    whole = identity.encode_format(FORMAT)
    for i in range(len(whole)):
        changed = whole[:i] + bytes((whole[i] ^ 1,)) + whole[i + 1 :]
        assert refusal(changed).reason == "format"


@pytest.mark.parametrize("size", [0, 1, 40])
def test_a_format_cut_short_is_refused(size: int) -> None:
    assert refusal(identity.encode_format(FORMAT)[:size]).reason == "format"


def test_a_store_with_snapshots_in_parts_says_so_and_is_read() -> None:
    parted = identity.with_parts(FORMAT)
    assert parted == msgspec.structs.replace(FORMAT, snapshot=5)
    assert identity.decode_format(identity.encode_format(parted), file="F") == parted


@pytest.mark.parametrize("name", ["store", "wal", "segment", "snapshot"])
@pytest.mark.parametrize("version", [0, 1, 99])
def test_another_version_is_refused_by_name(name: str, version: int) -> None:
    fields = msgspec.to_builtins(FORMAT) | {name: version}
    error = refusal(signed(msgspec.json.encode(fields)))
    assert f"{name} format is version {version}" in str(error)
    assert error.file == "/d/FORMAT"


def test_a_later_version_is_refused_as_such_even_with_fields_we_do_not_know() -> None:
    fields = msgspec.to_builtins(FORMAT) | {"store": 4, "store_id": 7, "extra": []}
    assert "store format is version 4" in str(refusal(signed(msgspec.json.encode(fields))))


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"nonsense",
        b"\xff",
        b'{"store":"3","wal":3,"segment":2,"snapshot":4}',
        b'{"store":3,"wal":3,"segment":2,"snapshot":4}',
        b'{"store":3,"wal":3,"segment":2,"snapshot":4,"store_id":"xyz","created_ms":1}',
    ],
)
def test_a_signed_line_that_is_no_format_is_refused(line: bytes) -> None:
    assert refusal(signed(line)).reason == "format"


def test_current_names_the_file_and_its_generation() -> None:
    text = identity.encode_current(1024, 7)
    assert text.startswith(b"wal-0000000000001024.log 7 ")
    assert text.endswith(b"\n")
    assert int(text.split()[2], 16) == h64(b"wal-0000000000001024.log 7 ")
    assert identity.decode_current(text) == Current(1024, 7)


def test_a_damaged_current_is_unreadable_and_no_error() -> None:
    whole = identity.encode_current(1024, 7)
    for i in range(len(whole)):
        assert identity.decode_current(whole[:i]) is None
        assert identity.decode_current(whole[:i] + bytes((whole[i] ^ 1,)) + whole[i + 1 :]) is None
    assert identity.decode_current(whole + b"\n") is None


def test_a_signed_current_with_a_name_we_would_not_write_is_unreadable() -> None:
    text = b"wal-1024.log 7 "
    assert identity.decode_current(b"%b%016x\n" % (text, h64(text))) is None


def test_the_lock_tells_who_owns_the_directory() -> None:
    owner = LockOwner(pid=42, host="box", started_ms=1_700_000_000_000, boot_id="ab" * 16)
    assert identity.decode_lock(identity.encode_lock(owner)) == owner


@pytest.mark.parametrize("data", [b"", b"{", b'{"pid":"x"}', b"\xff\xff", b"42"])
def test_a_lock_that_tells_nothing_is_no_error(data: bytes) -> None:
    assert identity.decode_lock(data) is None


def test_the_cold_marker_carries_the_store_id() -> None:
    assert identity.encode_cold_marker(STORE_ID) == b"000102030405060708090a0b0c0d0e0f\n"
    assert identity.decode_cold_marker(identity.encode_cold_marker(STORE_ID)) == STORE_ID


@pytest.mark.parametrize("data", [b"", b"00", b"\xff" * 32, b"zz" * 16, b"00" * 16 + b"\n\n"])
def test_a_marker_without_an_id_belongs_to_nobody(data: bytes) -> None:
    assert identity.decode_cold_marker(data) is None


def test_a_beacon_carries_the_first_half_of_the_store_id() -> None:
    assert identity.store_mark(STORE_ID) == int.from_bytes(bytes(range(8)), "little")

import pytest

from topics.errors import InvalidRequest
from topics.http.target import segments_of, split_target


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/v0/topics", (b"/v0/topics", b"")),
        (b"/a?b?c", (b"/a", b"b?c")),
        (b"/?", (b"/", b"")),
        (b"http://host:1/a/b?c=1", (b"/a/b", b"c=1")),
        (b"http://host", (b"/", b"")),
        (b"/a?u=http://x/y", (b"/a", b"u=http://x/y")),
        (b"*", (b"*", b"")),
    ],
)
def test_a_target_splits_into_path_and_query(target: bytes, expected: tuple[bytes, bytes]) -> None:
    assert split_target(target) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/v0/topics/a", ("v0", "topics", "a")),
        (b"/v0/topics/", ("v0", "topics", "")),
        (b"/", ("",)),
        (b"/jobs-%3Eaudit", ("jobs->audit",)),
        (b"/jobs->audit", ("jobs->audit",)),
        (b"/a%2Fb", ("a/b",)),
        (b"/%2541", ("%41",)),
        ("/grün".encode(), ("grün",)),
        (b"/gr%C3%BCn", ("grün",)),
        (b"/50%", ("50%",)),
        (b"/" + b"x" * 1000, ("x" * 1000,)),
    ],
)
def test_segments_are_decoded_once(path: bytes, expected: tuple[str, ...]) -> None:
    assert segments_of(path) == expected


@pytest.mark.parametrize("path", [b"/%ff", b"/\xff", b"/a/%C3/b", b"/" + b"%ff" * 1000])
def test_a_path_that_is_not_utf_8_is_refused(path: bytes) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            segments_of(path)

"""An object store that is slow, fails, cuts answers short or loses them."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.object_server import KEY, KEY_ID, Fault, ObjectServer, Proxy
from tests.unit.storage.objects.conftest import QUICK

from topics.errors import InvalidRequest, ObjectStoreFailed
from topics.storage import objects
from topics.storage.objects.aws import profile_credentials, profile_region
from topics.storage.objects.interface import ObjectChanged, ObjectExists, Objects
from topics.storage.objects.opening import open_objects


def test_a_server_that_fails_now_and_then_is_asked_again(
    behind_proxy: Objects, proxy: Proxy
) -> None:
    proxy.times(2, Fault(status=500))
    behind_proxy.put("a", b"1")
    proxy.times(2, Fault(status=503, code="SlowDown"))
    assert behind_proxy.read("a").data == b"1"


def test_a_server_that_goes_on_failing_is_told_as_worth_another_try(
    behind_proxy: Objects, proxy: Proxy
) -> None:
    proxy.times(99, Fault(status=500))
    for call in (
        lambda: behind_proxy.put("a", b"1"),
        lambda: behind_proxy.create("a", b"1"),
        lambda: list(behind_proxy.list()),
        lambda: behind_proxy.delete("a"),
    ):
        with pytest.raises(
            ObjectStoreFailed, match=r"500 Internal Server Error.*; try again"
        ) as hit:
            call()
        assert hit.value.retryable


def test_a_slow_answer_ends_in_an_error_and_not_in_a_wait_without_end(
    behind_proxy: Objects, proxy: Proxy
) -> None:
    behind_proxy.put("a", b"1")
    proxy.times(9, Fault(delay_s=1.5))
    with pytest.raises(ObjectStoreFailed) as hit:
        behind_proxy.read("a")
    assert hit.value.retryable


def test_an_answer_that_is_cut_short_is_never_taken_for_the_object(
    behind_proxy: Objects, proxy: Proxy
) -> None:
    behind_proxy.put("a", b"0123456789" * 1000)
    proxy.times(99, Fault(cut_to=5000), method="GET")
    assert behind_proxy.read("a").data == b"0123456789" * 1000
    proxy.times(99, Fault(cut_to=0), method="GET")
    with pytest.raises(ObjectStoreFailed) as hit:
        behind_proxy.read("a")
    assert hit.value.retryable
    with pytest.raises(ObjectStoreFailed):
        behind_proxy.read_range("a", 0, 8000)


def test_a_create_whose_answer_is_lost_succeeded(behind_proxy: Objects, proxy: Proxy) -> None:
    proxy.times(1, Fault(lost=True), method="PUT")
    version = behind_proxy.create("root", b"mine")
    assert behind_proxy.read("root").version == version


def test_a_create_whose_answers_are_all_lost_succeeded(behind_proxy: Objects, proxy: Proxy) -> None:
    proxy.times(99, Fault(lost=True), method="PUT")
    behind_proxy.create("root", b"mine")
    with pytest.raises(ObjectExists):
        behind_proxy.create("root", b"other")


def test_a_swap_whose_answer_is_lost_succeeded(behind_proxy: Objects, proxy: Proxy) -> None:
    version = behind_proxy.create("root", b"1")
    proxy.times(1, Fault(lost=True), method="PUT")
    newer = behind_proxy.swap("root", b"2", version)
    assert behind_proxy.read("root").version == newer
    proxy.times(99, Fault(lost=True), method="PUT")
    behind_proxy.swap("root", b"3", newer)
    with pytest.raises(ObjectChanged):
        behind_proxy.swap("root", b"4", newer)


def test_a_swap_that_never_arrived_is_told_as_failed(behind_proxy: Objects, proxy: Proxy) -> None:
    version = behind_proxy.create("root", b"1")
    proxy.times(99, Fault(status=500), method="PUT")
    with pytest.raises(ObjectStoreFailed) as hit:
        behind_proxy.swap("root", b"2", version)
    assert hit.value.retryable
    assert behind_proxy.read("root").data == b"1"


def test_a_create_that_never_arrived_is_told_as_failed(behind_proxy: Objects, proxy: Proxy) -> None:
    proxy.times(99, Fault(status=500), method="PUT")
    with pytest.raises(ObjectStoreFailed) as hit:
        behind_proxy.create("root", b"1")
    assert hit.value.retryable


def test_a_store_that_tells_of_a_missing_object_to_be_deleted_is_fine(
    behind_proxy: Objects, proxy: Proxy
) -> None:
    proxy.times(99, Fault(status=404, code="NoSuchKey"))
    behind_proxy.delete("a")


def test_refused_credentials_are_told_without_them(behind_proxy: Objects, proxy: Proxy) -> None:
    for status, code in ((403, "AccessDenied"), (400, "ExpiredToken"), (401, "Unauthorized")):
        proxy.times(99, Fault(status=status, code=code))
        with pytest.raises(ObjectStoreFailed, match=f"{code}; check the credentials"):
            behind_proxy.create("root", b"1")
        with pytest.raises(ObjectStoreFailed, match=f"{code}; check the credentials") as hit:
            behind_proxy.put("a", b"1")
        assert hit.value.denied
        assert not hit.value.retryable
        assert KEY not in str(hit.value)
        assert KEY_ID not in str(hit.value)
        assert hit.value.__cause__ is None


def test_a_bucket_that_is_missing_is_told(s3: ObjectServer) -> None:
    objects = open_objects("s3://no-such-bucket", patience=QUICK)
    for call in (lambda: objects.put("a", b""), lambda: objects.read("a")):
        with pytest.raises(ObjectStoreFailed, match="NoSuchBucket; check the address") as hit:
            call()
        assert not hit.value.retryable


def test_nobody_listening_is_told(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    objects = open_objects("s3://bucket", patience=QUICK)
    with pytest.raises(ObjectStoreFailed, match=r"HTTP error.*; try again"):
        objects.put("a", b"")


def test_keys_in_a_file_are_used_and_renewed(
    proxy: Proxy, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "backups")
    aws = tmp_path / ".aws"
    aws.mkdir()
    (aws / "config").write_text("[profile backups]\nregion = eu-west-1\n")
    keys = "[backups]\naws_access_key_id = {}\naws_secret_access_key = k\naws_session_token = t\n"
    (aws / "credentials").write_text(keys.format("FIRST"))
    valid = "FIRST"

    def rule(method: str, path: str, headers: Mapping[str, str]) -> Fault | None:
        sent = {name.lower(): value for name, value in headers.items()}
        is_valid = f"Credential={valid}/" in sent["authorization"]
        assert "/eu-west-1/" in sent["authorization"]
        assert sent["x-amz-security-token"] == "t"
        return None if is_valid else Fault(status=400, code="ExpiredToken")

    proxy.rule = rule
    objects = open_objects(f"s3://{s3.make_bucket()}", patience=QUICK)
    objects.put("a", b"1")
    valid = "SECOND"
    with pytest.raises(ObjectStoreFailed, match="ExpiredToken; check the credentials"):
        objects.put("a", b"2")
    (aws / "credentials").write_text(keys.format("SECOND"))
    objects.put("a", b"2")
    assert objects.size("a") == 1
    valid = "THIRD"
    (aws / "credentials").write_text(keys.format("THIRD"))
    assert objects.size("a") == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:secret@bucket/x", "have a bucket and a prefix only"),
        ("s3://bucket/x?endpoint=http://y", "have a bucket and a prefix only"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/a/../b", "no name of an object"),
        ("ftp://host/x", "is no destination"),
        ("file://host/x", "names a host"),
        ("", "is empty"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as hit:
        open_objects(url)
    assert "secret" not in str(hit.value)


def test_other_stores_are_reached_by_their_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    assert open_objects("az://container/a/b").url == "az://container/a/b"
    assert open_objects("gs://bucket").url == "gs://bucket"


def test_variables_win_over_files(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    read = profile_credentials(files)
    assert read is not None
    assert read()["access_key_id"] == "a"
    assert profile_credentials(files | {"AWS_ACCESS_KEY_ID": "c"}) is None
    assert profile_credentials(files | {"AWS_PROFILE": "other"}) is None
    assert profile_region({"AWS_REGION": "x"}) is None
    assert profile_region({"HOME": str(tmp_path)}) is None


def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(objects, "remote", raising=False)
    monkeypatch.setitem(sys.modules, "topics.storage.objects.remote", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'topics\[s3\]'"):
        open_objects("s3://bucket")

"""Objects in an object store (S3, Google Cloud Storage, Azure), over the library obstore.

The library tries a request again when the connection or the server fails. So the answer to a
conditional put may be "someone was faster" where the faster call was our own first try, and it may
be missing altogether. Both are settled by reading the object back (see `interface`).

What the library says of an error may quote the request and the answer, which name keys and tokens:
only a part of it that has none is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from topics.errors import ObjectStoreFailed
from topics.storage.fs import Buffer
from topics.storage.objects.interface import (
    Listed,
    NoSuchObject,
    ObjectChanged,
    ObjectContents,
    ObjectExists,
    Version,
    check_name,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from obstore import ObjectMeta, PutMode, UpdateVersion
    from obstore.store import ClientConfig, RetryConfig, S3CredentialProvider

    Store: TypeAlias = S3Store | GCSStore | AzureStore

T = TypeVar("T")

_DENIED: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
)
_CONFLICT: Final = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_PART_BYTES: Final = 8 << 20
_VERSION: Final[tuple[Literal["e_tag", "version"], ...]] = ("e_tag", "version")
_EXPIRED: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_PASSING: Final = ("408", "409", "429")
_REFUSED: Final = ("400", "401", "403")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_TROUBLE = re.compile(r"(HTTP error: [a-z ]+)")


class Patience(msgspec.Struct, frozen=True):
    """How long a call may take before it fails."""

    request_s: float = 60.0
    connect_s: float = 5.0
    retries: int = 6
    retry_s: float = 60.0

    def client(self) -> ClientConfig:
        return {
            "timeout": timedelta(seconds=self.request_s),
            "connect_timeout": timedelta(seconds=self.connect_s),
            "allow_http": True,  # where the endpoint is written with http://
        }

    def retry(self) -> RetryConfig:
        return {
            "max_retries": self.retries,
            "retry_timeout": timedelta(seconds=self.retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=10),
                "base": 2,
            },
        }


class RemoteObjects:
    """The objects of one bucket below a prefix.

    If access is refused, `connect` is called again and the call repeated once: a token may have
    expired since, and the library keeps what it read from a file for minutes.
    """

    def __init__(self, url: str, connect: Callable[[], Store]) -> None:
        self._url = url
        self._connect = connect
        self._store = connect()

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, data: Buffer | Iterable[Buffer]) -> None:
        check_name(name)
        with self._explained("write", name):
            if isinstance(data, bytes | bytearray | memoryview):
                self._ask(lambda store: obstore.put(store, name, data, chunk_size=_PART_BYTES))
            else:
                obstore.put(self._store, name, data, chunk_size=_PART_BYTES)

    def create(self, name: str, data: bytes) -> Version:
        check_name(name)
        try:
            return self._put(name, data, "create")
        except (exceptions.BaseError, OSError) as error:
            found = self._found_after(name, error)
            if found is None:
                raise self._failed("write", name, error) from None
            if found.data != data:
                raise ObjectExists(name) from None
            return found.version

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        check_name(name)
        mode: UpdateVersion = {}
        for key in _VERSION:
            if key in version:
                mode[key] = version[key]
        try:
            return self._put(name, data, mode)
        except (exceptions.BaseError, OSError) as error:
            found = self._found_after(name, error)
            if found is not None and found.data == data:
                return found.version
            if found is not None and found.version == version:
                raise self._failed("write", name, error) from None
            raise ObjectChanged(name) from None

    def read(self, name: str) -> ObjectContents:
        check_name(name)
        with self._explained("read", name):
            meta, data = self._ask(partial(_get, name, None))
            return ObjectContents(data, _version(meta))

    def read_range(self, name: str, start: int, size: int) -> bytes:
        check_name(name)
        with self._explained("read", name):
            try:
                _, data = self._ask(partial(_get, name, (start, start + max(size, 1))))
            except exceptions.BaseError as error:
                if _status_of(error) != "416":
                    raise
                return b""
            return data[:size]

    def size(self, name: str) -> int:
        check_name(name)
        with self._explained("read", name):
            return self._ask(lambda store: obstore.head(store, name)["size"])

    def list(self, folder: str = "") -> Iterator[Listed]:
        if folder:
            check_name(folder)
        with self._explained("list", folder):
            return iter(self._ask(partial(_list, folder)))

    def delete(self, name: str) -> None:
        check_name(name)
        try:
            with self._explained("delete", name):
                self._ask(lambda store: obstore.delete(store, name))
        except NoSuchObject:
            return

    def _put(self, name: str, data: bytes, mode: PutMode) -> Version:
        result = self._ask(
            lambda store: obstore.put(store, name, data, mode=mode, use_multipart=False)
        )
        return {key: value for key in _VERSION if (value := result[key]) is not None}

    def _ask(self, call: Callable[[Store], T]) -> T:
        try:
            return call(self._store)
        except exceptions.BaseError as error:
            if _status_of(error) not in _REFUSED:
                raise
            self._store = self._connect()
            return call(self._store)

    def _found_after(self, name: str, error: Exception) -> ObjectContents | None:
        """What is there after a conditional put whose outcome is unknown or doubtful."""
        failed = self._failed("write", name, error)
        is_missing = isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error)
        if not (failed.retryable or isinstance(error, _CONFLICT) or is_missing):
            raise failed from None
        try:
            return self.read(name)
        except NoSuchObject:
            return None

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or action == "write":
                raise self._failed(action, name, error) from None
            raise NoSuchObject(name) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._failed(action, name, error) from None

    def _failed(self, action: str, name: str, error: Exception) -> ObjectStoreFailed:
        text = str(error)
        status, code, trouble = _STATUS.search(text), _CODE.search(text), _TROUBLE.search(text)
        known = [found[1].strip() for found in (status, code, trouble) if found is not None]
        denied = isinstance(error, _DENIED) or (code is not None and code[1] in _EXPIRED)
        hopeless = _status_of(error)[:1] == "4" and _status_of(error) not in _PASSING
        return ObjectStoreFailed(
            self._url,
            doing=f"{action} {name or 'objects'}",
            reason=", ".join(known) or type(error).__name__,
            retryable=not denied and not hopeless,
            denied=denied,
        )


def _get(name: str, within: tuple[int, int] | None, store: Store) -> tuple[ObjectMeta, bytes]:
    found = obstore.get(store, name, options={} if within is None else {"range": within})
    return found.meta, bytes(found.bytes())


def _list(folder: str, store: Store) -> list[Listed]:
    pages = obstore.list(store, folder or None, chunk_size=1000)
    return [Listed(each["path"], each["size"]) for page in pages for each in page]


def _status_of(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return "" if found is None else found[1][:3]


def connect_s3(
    bucket: str,
    prefix: str,
    *,
    patience: Patience,
    credentials: S3CredentialProvider | None,
    region: str | None,
) -> Store:
    """A bucket of S3 or of a store that speaks its protocol; the rest comes from AWS_ variables."""
    options: dict[str, str] = {} if region is None else {"region": region}
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options=patience.client(),
        retry_config=patience.retry(),
        credential_provider=credentials,
        config=options,  # type: ignore[arg-type]  # a plain dict of its own keys
    )


def connect_gcs(bucket: str, prefix: str, *, patience: Patience) -> Store:
    return GCSStore(
        bucket,
        prefix=prefix or None,
        client_options=patience.client(),
        retry_config=patience.retry(),
    )


def connect_azure(container: str, prefix: str, *, patience: Patience) -> Store:
    return AzureStore(
        container,
        prefix=prefix or None,
        client_options=patience.client(),
        retry_config=patience.retry(),
    )


def _version(meta: ObjectMeta) -> Version:
    return {key: value for key in _VERSION if (value := meta[key]) is not None}

"""From a URL to a destination.

    /backups/main, backups, file:///backups/main    a directory
    s3://bucket/prefix                               S3, or a store with its protocol
    gs://bucket/prefix                               Google Cloud Storage
    az://container/prefix                            Azure Blob Storage

Everything but the place comes from where programs of that store look for it: the variables AWS_*
(AWS_ENDPOINT_URL for other stores with the protocol of S3), the files of `aws configure`, the
metadata service of a machine; GOOGLE_*; AZURE_*. A URL with a password is refused: URLs are shown
and kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from topics.errors import InvalidRequest
from topics.storage.fs import Fs, RealFs
from topics.storage.objects.aws import profile_credentials, profile_region
from topics.storage.objects.directory import DirectoryObjects
from topics.storage.objects.interface import Objects, check_name

if TYPE_CHECKING:
    from topics.storage.objects.remote import Patience

REMOTE_SCHEMES = ("s3", "gs", "az")


def is_remote(url: str) -> bool:
    """Whether a URL names an object store, not a directory."""
    return url.partition("://")[0] in REMOTE_SCHEMES and "://" in url


def open_objects(
    url: str,
    *,
    fs: Fs | None = None,
    environ: Mapping[str, str] = os.environ,
    patience: Patience | None = None,
) -> Objects:
    """The destination of this URL; nothing is read or written yet."""
    if not is_remote(url):
        return DirectoryObjects(fs or RealFs(), _directory(url))
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidRequest(
            f"{parts.scheme}:// URLs have a bucket and a prefix only; give credentials and the "
            "endpoint in the variables of the store's own tools"
        )
    prefix = parts.path.strip("/")
    if prefix:
        check_name(prefix)
    if not parts.netloc:
        raise InvalidRequest(f"{url} names no bucket; give {parts.scheme}://BUCKET/PREFIX")
    return _remote(parts.scheme, parts.netloc, prefix, environ, patience)


def _remote(
    scheme: str, bucket: str, prefix: str, environ: Mapping[str, str], patience: Patience | None
) -> Objects:
    try:
        from topics.storage.objects import remote  # noqa: PLC0415 - an extra, and 16 MB to load
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"{scheme}:// needs the package obstore: pip install 'topics[s3]'"
        ) from error
    patience = patience or remote.Patience()
    url = f"{scheme}://{bucket}/{prefix}".rstrip("/")

    def connect() -> remote.Store:
        if scheme == "gs":
            return remote.connect_gcs(bucket, prefix, patience=patience)
        if scheme == "az":
            return remote.connect_azure(bucket, prefix, patience=patience)
        return remote.connect_s3(
            bucket,
            prefix,
            patience=patience,
            credentials=profile_credentials(environ),
            region=profile_region(environ),
        )

    return remote.RemoteObjects(url, connect)


def _directory(url: str) -> str:
    if not url.startswith("file:"):
        scheme, colon, _ = url.partition("://")
        if colon and scheme.isalnum():
            raise InvalidRequest(
                f"{scheme}:// is no destination; give a directory, file:, s3://, gs:// or az://"
            )
        path = url
    else:
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequest(f"{url} names a host; give file:///PATH")
        path = unquote(parts.path)
    if not path:
        raise InvalidRequest("the destination is empty; give a directory or a URL")
    return path

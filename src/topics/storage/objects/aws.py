"""Credentials from the files of `aws configure`, read again before they expire.

The library finds credentials in variables and in the metadata service of a machine, but does not
read these files. Variables win, as they do for the tools of AWS.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from obstore.store import S3Credential

_RELOAD: Final = timedelta(minutes=5)
"""A file may be replaced at any time, by whatever renews a token; it says nothing of when."""

_OTHER_SOURCES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def profile_credentials(environ: Mapping[str, str]) -> Callable[[], S3Credential] | None:
    """A reader of the profile's keys; None if they come from elsewhere."""
    if any(environ.get(name) for name in _OTHER_SOURCES):
        return None
    if "aws_secret_access_key" not in _section(environ, "credentials", _profile(environ)):
        return None

    def read() -> S3Credential:
        found = _section(environ, "credentials", _profile(environ))
        return {
            "access_key_id": found.get("aws_access_key_id", ""),
            "secret_access_key": found.get("aws_secret_access_key", ""),
            "token": found.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _RELOAD,
        }

    return read


def profile_region(environ: Mapping[str, str]) -> str | None:
    """The profile's region, if no variable names one."""
    if environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        return None
    profile = _profile(environ)
    section = profile if profile == "default" else f"profile {profile}"
    return _section(environ, "config", section).get("region")


def _profile(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_PROFILE") or "default"


def _section(environ: Mapping[str, str], which: str, section: str) -> Mapping[str, str]:
    variable = {"credentials": "AWS_SHARED_CREDENTIALS_FILE", "config": "AWS_CONFIG_FILE"}[which]
    path = environ.get(variable) or os.path.join(environ.get("HOME", "/"), ".aws", which)
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8"))
        return parser[section]
    except (OSError, ValueError, KeyError, configparser.Error):
        return {}

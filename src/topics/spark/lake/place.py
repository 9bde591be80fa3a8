"""Where a lake table is, and what lies beside it.

    <table>/                      Parquet files of the table
    <table>/_delta_log/           its log
    <table>/_topics_checkpoint/   the Spark checkpoint, unless another place was named
    <table>/_topics_lock          held by whoever commits; `_topics_sync` by a running sync
    <table>/_topics_erased.jsonl  which (epoch, seq) were taken out of it
    <table>__loss/                a table of the runs that the log had lost before they arrived
    <table>__receipts/            erasure receipts

Names in the table's directory begin with an underscore: by Delta's rules a vacuum leaves them be.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from topics.errors import InvalidRequest

LOG_DIR: Final = "_delta_log"
CHECKPOINT_DIR: Final = "_topics_checkpoint"
LOCK: Final = "_topics_lock"
SYNC_LOCK: Final = "_topics_sync"
ERASED: Final = "_topics_erased.jsonl"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:-]")
_MAX_NAME: Final = 255


@dataclass(frozen=True)
class Place:
    """The directory of a table."""

    path: str

    @staticmethod
    def of(table: str) -> Place:
        """From a path or a `file://` address."""
        if "://" in table:
            parts = urlsplit(table)
            if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
                raise InvalidRequest(
                    f"{table} cannot be a lake table: give a path or a file:// address"
                )
            table = unquote(parts.path)
        path = os.path.abspath(os.path.expanduser(table))
        if not os.path.basename(path):
            raise InvalidRequest(f"{table!r} is no place for a table; name a directory")
        return Place(path)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def cursor(self) -> str:
        """The name under which a sync tells the topic's server how far it is."""
        return f"lake.{_NOT_IN_NAMES.sub('-', self.name)}"[:_MAX_NAME]

    @property
    def log(self) -> str:
        return self.inside(LOG_DIR)

    @property
    def checkpoint(self) -> str:
        return self.inside(CHECKPOINT_DIR)

    @property
    def loss(self) -> Place:
        return Place(f"{self.path}__loss")

    @property
    def receipts(self) -> str:
        return f"{self.path}__receipts"

    def inside(self, name: str) -> str:
        return os.path.join(self.path, name)

"""What can go wrong with a lake table, beside the errors of the log itself."""

from __future__ import annotations

from topics.errors import TopicsError


class LakeError(TopicsError):
    """Base of this family."""

    code = "lake"


class NoSuchTable(LakeError):
    """There is no lake table in that place."""

    code = "not_found"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"there is no lake table at {path}; `topics lake sync TOPIC {path}` makes one"
        )


class TableDamaged(LakeError):
    """The log of a table cannot be read."""

    code = "table_damaged"

    def __init__(self, path: str, error: Exception) -> None:
        said = str(error).partition("\n")[0]
        super().__init__(f"the log of the table {path} cannot be read: {said}")


class ForeignTable(LakeError):
    """The table is not the one that is wanted: another topic's, or none of ours."""

    code = "foreign_table"


class RangesDoNotJoin(LakeError):
    """Rows of an epoch do not begin where the table ends, or leave out seqs without a reason."""

    code = "ranges_do_not_join"


class TableBusy(LakeError):
    """Another process is at work on the table and must not be disturbed."""

    code = "table_busy"


class FilesVanished(LakeError):
    """Files that were written for an epoch are gone before it could be committed."""

    code = "files_vanished"


class SyncFailed(LakeError):
    """The query that fills a table ended with an error; its message says which."""

    code = "sync_failed"

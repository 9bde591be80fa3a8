"""What can go wrong between Spark and a topic, beside the errors of the log itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from topics.errors import InvalidRequest, NotFound, TopicsError


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, rarely needed

    spelled = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelled, n=1)
    return spelled[near[0]] if near else None


class CannotStartSpark(TopicsError):
    """This machine lacks something Spark needs, or it is set up in a way that loses data."""

    code = "spark_setup"


class InvalidOption(TopicsError):
    """An option of a read or write that is unknown, contradicts another or makes no sense."""

    code = "invalid_option"


class OtherTargets(TopicsError):
    """This transaction was committed with records for other topics; nothing was written now."""

    code = "other_targets"


class RecordsLost(TopicsError):
    """Retention or a crash took records of the range, and the reader asked to fail then."""

    code = "records_lost"


class CoverageBroken(TopicsError):
    """Rows and announced gaps do not account for every seq of a planned range."""

    code = "coverage_broken"


class InvalidFlow(InvalidRequest):
    """The file does not describe a flow; nothing was started."""

    @classmethod
    def unknown_key(
        cls, key: str, known: Sequence[str], *, file: Path, where: str = ""
    ) -> InvalidFlow:
        """An unknown key, with the nearest known one."""
        near = nearest(key, known)
        hint = f"did you mean `{near}`?" if near else f"known: {', '.join(known)}"
        return cls(f"{file}: `{key}` is no key{where}; {hint}")


class NoSuchFlow(NotFound):
    """No flow of this name has run here."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        hint = f"there are: {', '.join(known)}" if known else "none has run here yet"
        TopicsError.__init__(self, f'flow "{name}" does not exist; {hint}')


class FlowRuns(TopicsError):
    """A flow of this name is running already; two would share one checkpoint."""

    code = "flow_runs"


class FlowFailed(TopicsError):
    """The flow ended with an error; its checkpoint is as the last finished batch left it."""

    code = "flow_failed"


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

"""The Delta table of a topic: how it is made, what it says of itself, how it is changed.

    epoch long not null, seq long not null, ts timestamp, node, tag, data, meta string

A typed table has the fields of data as columns instead: see `typed`. It is not partitioned; (epoch,
seq) is the key. How far it is stands in the table itself, as Delta
transactions, which survive the clean-up of its log:

    app                          version
    <query id>                   the last micro-batch of that query
    topics:<topic>:<epoch>       the last seq that is in the table, or known to be lost or deleted
    topics:<topic>:<epoch>:del   the topic's `delete_version` up to which deletes were carried over
    topics:<topic>:epoch         the newest epoch of the topic that the table knows
    topics:<topic>:<epoch>:time  when the newest record up to there was written, in milliseconds
    topics:<topic>:<epoch>:rows, :unfit, :lost, :erased
                                 how many records landed, landed beside for not fitting, were lost,
                                 and have left the table since; see `certifying`

A commit is made against the version that was looked at, or not at all: delta-rs would otherwise
rebase it onto changes it never saw. `attempt` looks again and repeats.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from topics.spark.errors import ForeignTable, NoSuchTable, TableDamaged
from topics.spark.lake.parquet import FILE_BYTES, ROWS, WrittenFile, sync_directory, sync_file
from topics.spark.lake.place import TablePath
from topics.spark.lake.shape import only_adds, struct_of
from topics.spark.lake.typed import TypedAs

if TYPE_CHECKING:
    from deltalake import Metadata

T = TypeVar("T")

TOPIC: Final = "topics.topic"
ORIGIN: Final = "topics.origin"
CHECKPOINT: Final = "topics.checkpoint"
FILE_SIZE: Final = "delta.targetFileSize"
"""Delta's own; a compaction keeps to it."""
ROWS_LANDED: Final = "rows"
UNFIT_LANDED: Final = "unfit"
LOST: Final = "lost"
ERASED_ROWS: Final = "erased"
TIME: Final = "time"
RETAIN_HOURS: Final = 7 * 24
"""How long a file that the table let go stays for those who read it, as Delta advises."""
_SETTINGS: Final = {
    "delta.dataSkippingStatsColumns": "seq,ts",
    "delta.enableDeletionVectors": "false",
    "delta.logRetentionDuration": f"interval {RETAIN_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {RETAIN_HOURS} hours",
    "delta.enableExpiredLogCleanup": "false",  # only maintenance takes anything away
    "delta.checkpointInterval": "20",
}
_TRIES: Final = 20


@dataclass(frozen=True)
class StoredFile:
    """A file that the table's log names."""

    name: str
    size: int
    rows: int | None
    seqs: tuple[int, int] | None


@dataclass(frozen=True)
class TableCommit:
    """What one commit does."""

    add: Sequence[WrittenFile] = ()
    remove: Sequence[StoredFile] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, str | int] = field(default_factory=dict)
    """For people: it goes when the log is cleaned up."""


def position_app(topic: str, epoch: int) -> str:
    return f"topics:{topic}:{epoch}"


def deletes_app(topic: str, epoch: int) -> str:
    return f"topics:{topic}:{epoch}:del"


def newest_app(topic: str) -> str:
    return f"topics:{topic}:epoch"


def count_app(topic: str, epoch: int, what: str) -> str:
    return f"{position_app(topic, epoch)}:{what}"


class LakeTable:
    """One version of a table. Every commit makes the object stale: open it again."""

    def __init__(self, place: TablePath, delta: DeltaTable) -> None:
        self.place = place
        self.delta = delta

    @staticmethod
    def exists(place: TablePath) -> bool:
        return DeltaTable.is_deltatable(place.path)

    @staticmethod
    def open(place: TablePath) -> LakeTable:
        try:
            return LakeTable(place, DeltaTable(place.path))
        except TableNotFoundError as error:
            raise NoSuchTable(place.path) from error
        except DeltaError as error:
            if not os.path.isdir(place.path):
                raise NoSuchTable(place.path) from error
            raise TableDamaged(place.path, error) from error

    @staticmethod
    def create(place: TablePath, schema: pa.Schema, settings: Mapping[str, str]) -> LakeTable:
        """Make it, unless it is there."""
        DeltaTable.create(
            place.path,
            schema,
            mode="ignore",
            name=place.name,
            configuration={**_SETTINGS, **settings},
            raise_if_key_not_exists=False,
        )
        return LakeTable.open(place)

    @staticmethod
    def of_topic(
        place: TablePath, topic: str, *, origin: str, typed: TypedAs | None = None
    ) -> LakeTable:
        """The table of a topic, made if need be; refuses that of another topic.

        It goes on as it was begun, with columns or with data as text. `typed` is how a new one
        begins; it can add fields to a declared schema.
        """
        schema = ROWS if typed is None else typed.schema()
        kinds = {} if typed is None else typed.settings()
        table = LakeTable.create(place, schema, {TOPIC: topic, ORIGIN: origin, **kinds})
        table.require_topic(topic)
        if typed is None:
            return table
        table.require_typed(typed)
        table.add_columns(typed.schema())
        for name, text in typed.settings().items():
            table.remember(name, text)
        return LakeTable.open(place)

    # What it says of itself

    @property
    def version(self) -> int:
        return self.delta.version()

    @property
    def settings(self) -> Mapping[str, str]:
        metadata: Metadata = self.delta.metadata()
        return metadata.configuration

    @property
    def topic(self) -> str:
        """The topic it is made from; refuses a table that no topic was written to."""
        found = self.settings.get(TOPIC)
        if found is None:
            raise ForeignTable(f"{self.place.path} is a Delta table, but not made by a lake sync")
        return found

    def require_topic(self, topic: str) -> None:
        if self.topic != topic:
            raise ForeignTable(
                f"{self.place.path} is the table of topic {self.topic}, not of {topic}; choose "
                "another"
            )

    def require_typed(self, typed: TypedAs) -> None:
        """Refuse a schema that does not continue the one of the table."""
        typed.require_continues(self.place.path, self.typed)

    @property
    def typed(self) -> TypedAs | None:
        """How records become columns; None if data stays text."""
        return TypedAs.of_settings(self.settings)

    @property
    def file_bytes(self) -> int:
        """How large files should become."""
        return int(self.settings.get(FILE_SIZE, FILE_BYTES))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.delta.schema().to_arrow())

    def transaction(self, app: str) -> int | None:
        return self.delta.transaction_version(app)

    def position(self, topic: str, epoch: int) -> int:
        """The last seq of an epoch that is dealt with; 0 before the first."""
        return self.transaction(position_app(topic, epoch)) or 0

    def count(self, topic: str, epoch: int, what: str) -> int | None:
        """One of the counts of an epoch; None if nobody counted."""
        return self.transaction(count_app(topic, epoch, what))

    def files(self) -> list[StoredFile]:
        """Every file of this version."""
        actions = self.delta.get_add_actions(flatten=True)
        listed = pa.RecordBatchReader.from_stream(actions).read_all()
        names = listed.schema.names
        columns = [
            listed.column(name).to_pylist() if name in names else [None] * listed.num_rows
            for name in ("path", "size_bytes", "num_records", "min.seq", "max.seq")
        ]
        return [
            StoredFile(name, size, rows, None if low is None else (low, high))
            for name, size, rows, low, high in zip(*columns, strict=True)
        ]

    # Changing it

    def commit(self, change: TableCommit, *, rebase: bool = False) -> None:
        """Make one new version, durably; `CommitFailedError` if another came in between.

        With `rebase` a change that only adds goes on top of what came in between.
        """
        made = self.version + 1
        now_ms = time.time_ns() // 1_000_000
        removed = [RemoveAction(file.name, True, now_ms, file.size, {}) for file in change.remove]
        added = [
            AddAction(file.name, file.size, {}, now_ms, True, file.statistics.to_json())
            for file in change.add
        ]
        self.delta.create_write_transaction(
            [*removed, *added],
            mode="append",
            schema=self.delta.schema(),
            partition_by=[],
            commit_properties=CommitProperties(
                custom_metadata=dict(change.told),
                max_commit_retries=None if rebase else 0,
                app_transactions=[Transaction(a, v) for a, v in change.transactions.items()],
            ),
            post_commithook_properties=PostCommitHookProperties(
                cleanup_expired_logs=None if rebase else False
            ),
        )
        self._make_durable(made)

    def add_columns(self, schema: pa.Schema) -> None:
        """Add what the table lacks, also inside objects; rows that are there have null in it."""
        if only_adds(struct_of(schema), struct_of(self.schema)):
            return
        wanted = Schema.from_arrow(schema).fields
        self.delta.alter.add_columns([each for each in wanted if each.name not in ("epoch", "seq")])
        self._make_durable(self.delta.version())

    def replace_all(self, files: Sequence[WrittenFile], schema: pa.Schema) -> None:
        """Make one version that consists of these files, with these columns."""
        made, now_ms = self.version + 1, time.time_ns() // 1_000_000
        self.delta.create_write_transaction(
            [
                AddAction(file.name, file.size, {}, now_ms, True, file.statistics.to_json())
                for file in files
            ],
            mode="overwrite",
            schema=Schema.from_arrow(schema),
            partition_by=[],
            commit_properties=CommitProperties(
                custom_metadata={"topics": "columns"}, max_commit_retries=0
            ),
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
        )
        self._make_durable(made)

    def remember(self, name: str, text: str) -> None:
        """Keep a setting of ours with the table."""
        if self.settings.get(name) != text:
            self.delta.alter.set_table_properties({name: text}, raise_if_not_exists=False)

    def _make_durable(self, version: int) -> None:
        with suppress(FileNotFoundError):  # a maintenance elsewhere has already made it history
            sync_file(f"{self.place.log}/{version:020d}.json")
        sync_directory(self.place.log)


def attempt(place: TablePath, change: Callable[[LakeTable], T]) -> T:
    """Change the table as it is now; again whenever another process changed it first."""
    for _ in range(_TRIES - 1):
        with suppress(CommitFailedError):
            return change(LakeTable.open(place))
    return change(LakeTable.open(place))

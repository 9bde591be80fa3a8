"""Where staged records lie until their epoch is committed: in files, or in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from topics.errors import RefusedToOpen
from topics.storage import layout, stages
from topics.storage.fs import Fs, parent_of
from topics.storage.stages import BadStage, Stage, StagedRow, StageInfo, StageKey, body_bytes


class StageStore(Protocol):
    """Every call may block and may raise `OSError`; none touches the state of the engine.

    Two calls for one app and epoch must not overlap.
    """

    found: list[StageInfo]
    """What lay here at the start."""

    def write(
        self, key: StageKey, rows: Iterable[StagedRow], *, now_ms: int, owner: bytes
    ) -> StageInfo:
        """Keep these records in place of any under the same key; durable on return."""
        ...

    def read(self, key: StageKey) -> Stage | None:
        """The whole stage; None when it is gone or not as it was written."""
        ...

    def remove(self, key: StageKey) -> None:
        """Discard one stage; one that is already gone is fine."""
        ...

    def remove_epoch(self, app: str, epoch: int) -> None:
        """Discard everything that lies under this epoch."""
        ...


class FileStageStore:
    """Stages as files under `stages/`."""

    def __init__(self, fs: Fs, data_dir: str) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self.damaged: list[str] = []
        self.found: list[StageInfo] = []

    def write(
        self, key: StageKey, rows: Iterable[StagedRow], *, now_ms: int, owner: bytes
    ) -> StageInfo:
        return stages.write_stage(self._fs, self._data_dir, key, rows, now_ms=now_ms, owner=owner)

    def read(self, key: StageKey) -> Stage | None:
        try:
            return stages.read_stage(self._fs, key.path(self._data_dir), key)
        except (FileNotFoundError, BadStage):
            return None

    def remove(self, key: StageKey) -> None:
        stages.remove_stage(self._fs, self._data_dir, key)

    def remove_epoch(self, app: str, epoch: int) -> None:
        stages.remove_epoch(self._fs, self._data_dir, app, epoch)


def open_stage_store(fs: Fs, data_dir: str) -> FileStageStore:
    """The stages that a restart finds, each with a name that no power cut can take back.

    A process may have died between naming a stage and syncing that name; committed like that, the
    stage could be missing when replay asks for it. Damaged files are left where they are: they
    are never used, and the operator may want to see them.
    """
    stage_store = FileStageStore(fs, data_dir)
    try:
        stages.remove_leftovers(fs, data_dir)
        listing = stages.list_stages(fs, data_dir)
        stage_store.found = listing.stages
        stage_store.damaged = listing.damaged
        named = {parent_of(info.key.path(data_dir)) for info in listing.stages}
        for directory in sorted(named):
            fs.sync_dir(directory)
        if named:
            fs.sync_dir(f"{data_dir}/{layout.STAGES}")
            fs.sync_dir(data_dir)
    except OSError as error:
        raise RefusedToOpen(
            "io_error",
            message=f"the stages in {data_dir} cannot be read: {error}; check the disk",
            file=data_dir,
        ) from error
    return stage_store


class MemoryStageStore:
    """Stages of a store without files."""

    def __init__(self) -> None:
        self.found: list[StageInfo] = []
        self._stages: dict[StageKey, Stage] = {}

    def write(
        self, key: StageKey, rows: Iterable[StagedRow], *, now_ms: int, owner: bytes
    ) -> StageInfo:
        kept = list(rows)
        nbytes = sum(len(row.data) + len(row.meta) for row in kept)
        taken = stages.disk_bytes(key, owner, sum(map(body_bytes, kept)))
        info = StageInfo(key, now_ms, len(kept), nbytes, taken, owner)
        self._stages[key] = Stage(info, kept)
        return info

    def read(self, key: StageKey) -> Stage | None:
        return self._stages.get(key)

    def remove(self, key: StageKey) -> None:
        self._stages.pop(key, None)

    def remove_epoch(self, app: str, epoch: int) -> None:
        for key in [key for key in self._stages if (key.app, key.epoch) == (app, epoch)]:
            del self._stages[key]

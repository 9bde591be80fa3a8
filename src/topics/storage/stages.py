"""Stage files, version 1: records kept aside until their epoch is committed.

A sink writes what belongs together as stages, one file per part and attempt, and then commits the
epoch. Until then no reader sees the records. After the commit point replay appends from the stage
files every record that had not yet reached the log when the process died. So a file is durable,
name included, before `write_stage` returns, and is believed only as a whole.

    stages/<16 hex digits of H64(app)>-<epoch>/<part>-<attempt>.stage

Integers are little-endian.

    offset  size  field
         0     4  magic       "STG1"
         4     4  version     1, or 2 for a stage with an owner
         8     8  epoch
        16     8  part
        24     8  attempt
        32     8  created_ms  when it was staged; its time to live counts from here
        40     8  records     number of records
        48     8  nbytes      accounted size: data and meta of all records
        56     8  body_len    bytes of the body
        64     8  body_h      H64 of the body
        72     2  app_len
        74     n  app         UTF-8
      74+n     m  owner       16 bytes in version 2: fingerprint of the key that staged; else none
    74+n+m     8  H64 of everything before
    82+n+m        body: the records, back to back

    size  field of a record
       1  flags      b0 has_tag, b1 has_node: an empty tag is not the same as none
       2  topic_len
       2  node_len   0 without node
       2  tag_len    0 without tag
       4  data_len
       4  meta_len   0 without meta
          topic, node, tag, data, meta

The header has its own checksum so that a start can list stages, with their sizes and ages, without
reading their records; the directory's name holds only a hash, so the app is named inside. It is
written after the body, whose size and checksum are known only then.

Two writes of one key, or a write and a removal of one epoch, must not overlap: the caller sees to
that. Everything else here may run at the same time.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh3_64

from topics.batch import RecordBatch
from topics.storage import layout
from topics.storage.checksum import h64
from topics.storage.crashpoints import crashpoint
from topics.storage.frames.header import FLAG_NODE, FLAG_TAG, MAX_FRAME
from topics.storage.fs import TMP_SUFFIX, File, Fs, parent_of, read_exact, write_all

VERSION: Final = 1
VERSION_OWNED: Final = 2
OWNER_BYTES: Final = 16
MAGIC: Final = b"STG1"
BUFFER_BYTES: Final = 1 << 20
STEP_ROWS: Final = 1024
"""So many records are looked at in one call that holds the interpreter."""

_HEAD = struct.Struct("<4sI8QH")
_U64 = struct.Struct("<Q")
_ROW = struct.Struct("<BHHHII")
ROW_BYTES: Final = _ROW.size
_MAX_APP: Final = 512  # bytes; names of apps are shorter
_MAX_HEADER: Final = _HEAD.size + _MAX_APP + OWNER_BYTES + _U64.size
BLOCK_BYTES: Final = 4096
"""What even the smallest file takes on a disk."""

assert _HEAD.size == 74


class BadStage(ValueError):
    """The file is damaged, or not the stage it should be; nothing in it may be used."""


class StageKey(NamedTuple):
    """Which stage: the same key staged again replaces it."""

    app: str
    epoch: int
    part: int
    attempt: int

    def path(self, data_dir: str) -> str:
        return layout.stage_path(
            data_dir, app=self.app, epoch=self.epoch, part=self.part, attempt=self.attempt
        )


class StagedRow(NamedTuple):
    """One record and the topic it is meant for; `meta` is empty when there is none."""

    topic: str
    node: str | None
    tag: str | None
    data: bytes
    meta: bytes = b""


def body_bytes(row: StagedRow) -> int:
    """What a row takes in a stage."""
    names = (row.topic, row.node or "", row.tag or "")
    return ROW_BYTES + sum([len(name.encode()) for name in names]) + len(row.data) + len(row.meta)


class StageInfo(msgspec.Struct, frozen=True):
    """A stage without its records. `nbytes`, of data and meta, is what callers are told."""

    key: StageKey
    created_ms: int
    records: int
    nbytes: int
    disk_bytes: int = 0  # of its file: also names, which may be many times as large as the data
    owner: bytes = b""  # fingerprint of the key that staged it; empty without keys


def disk_bytes(key: StageKey, owner: bytes, body_bytes: int) -> int:
    """What the file of a stage takes on the disk: whole blocks."""
    size = _header_bytes(len(key.app.encode()), owner) + body_bytes
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _header_bytes(app_bytes: int, owner: bytes) -> int:
    return _HEAD.size + app_bytes + len(owner) + _U64.size


class Stage(msgspec.Struct, frozen=True):
    """A whole stage, checked."""

    info: StageInfo
    rows: list[StagedRow]


class StageListing(msgspec.Struct, frozen=True):
    """What lies in `stages/`: sound headers, and the paths of files that have none."""

    stages: list[StageInfo]
    damaged: list[str]


class _Header(NamedTuple):
    info: StageInfo
    size: int  # of the header itself
    body_len: int
    body_h: int


# Writing


def write_stage(
    fs: Fs,
    data_dir: str,
    key: StageKey,
    rows: Iterable[StagedRow],
    *,
    now_ms: int,
    owner: bytes = b"",
) -> StageInfo:
    """Stage these records in place of any staged under this key; durable on return.

    `rows` is consumed once, with one buffer in memory. After an error the key stands for the
    earlier stage or the new one, never for a mix; staging it again settles which.
    """
    path = key.path(data_dir)
    directory = parent_of(path)
    tmp = path + TMP_SUFFIX
    fs.mkdirs(directory)
    try:
        info = _write_file(fs, tmp, key, rows, now_ms=now_ms, owner=owner)
        crashpoint("stage.file")
        fs.rename(tmp, path)
    except Exception:
        with contextlib.suppress(OSError):  # on a full disk half a file would be in the way
            fs.unlink(tmp)
        raise
    # All three: another write that made a directory may not have synced its name yet.
    for changed in (directory, parent_of(directory), data_dir):
        fs.sync_dir(changed)
    return info


def _write_file(
    fs: Fs, path: str, key: StageKey, rows: Iterable[StagedRow], *, now_ms: int, owner: bytes
) -> StageInfo:
    app = key.app.encode()
    assert len(app) <= _MAX_APP, "names of apps are checked where they enter"
    assert len(owner) in (0, OWNER_BYTES), "a fingerprint has one size"
    file = fs.open(path, write=True, create=True, truncate=True)
    try:
        body = _BodyWriter(file, _header_bytes(len(app), owner))
        for row in rows:
            body.add(row)
        body.flush()
        head = _HEAD.pack(
            MAGIC,
            VERSION_OWNED if owner else VERSION,
            key.epoch,
            key.part,
            key.attempt,
            now_ms,
            body.records,
            body.nbytes,
            body.written,
            body.checksum.intdigest(),
            len(app),
        )
        head += app + owner
        write_all(file, head + _U64.pack(h64(head)), 0)
        file.fsync()
    finally:
        file.close()
    taken = disk_bytes(key, owner, body.written)
    return StageInfo(key, now_ms, body.records, body.nbytes, taken, owner)


class _BodyWriter:
    """Records to bytes, through one buffer."""

    def __init__(self, file: File, start: int) -> None:
        self.records = 0
        self.nbytes = 0
        self.written = 0
        self.checksum = xxh3_64()
        self._file = file
        self._start = start
        self._buffer = bytearray()

    def add(self, row: StagedRow) -> None:
        topic, node, tag = row.topic.encode(), (row.node or "").encode(), (row.tag or "").encode()
        flags = FLAG_NODE * (row.node is not None) | FLAG_TAG * (row.tag is not None)
        self._buffer += b"".join(
            (
                _ROW.pack(flags, len(topic), len(node), len(tag), len(row.data), len(row.meta)),
                topic,
                node,
                tag,
                row.data,
                row.meta,
            )
        )
        self.records += 1
        self.nbytes += len(row.data) + len(row.meta)
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        piece = bytes(self._buffer)
        self._buffer.clear()
        write_all(self._file, piece, self._start + self.written)
        self.checksum.update(piece)
        self.written += len(piece)


# Reading


def read_stage(fs: Fs, path: str, key: StageKey) -> Stage:
    """The stage of this key; `BadStage` unless every byte of the file is as it was written.

    Errors of the disk pass through, a missing file among them.
    """
    file = fs.open(path)
    try:
        header = _read_header(file)
        if header.info.key != key:
            raise BadStage(f"{path} holds {header.info.key}, not {key}")
        rows = _read_rows(file, header)
    except EOFError as error:
        raise BadStage("it became shorter while it was read") from error
    finally:
        file.close()
    nbytes = sum(len(row.data) + len(row.meta) for row in rows)
    if (len(rows), nbytes) != (header.info.records, header.info.nbytes):
        raise BadStage("the header counts other records than there are")
    return Stage(header.info, rows)


def _read_header(file: File) -> _Header:
    """The header; with it the length of the body is known to be right, but not its contents."""
    size = file.size()
    start = read_exact(file, min(size, _MAX_HEADER), 0)
    if len(start) < _HEAD.size:
        raise BadStage("shorter than its header")
    magic, version, epoch, part, attempt, created_ms, *counts, app_len = _HEAD.unpack_from(start)
    records, nbytes, body_len, body_h = counts
    if magic != MAGIC:
        raise BadStage("not a stage")
    if version not in (VERSION, VERSION_OWNED):
        raise BadStage(f"version {version}, this program reads {VERSION} and {VERSION_OWNED}")
    app_end = _HEAD.size + app_len
    end = app_end + (OWNER_BYTES if version == VERSION_OWNED else 0)
    if len(start) < end + _U64.size or h64(start[:end]) != _U64.unpack_from(start, end)[0]:
        raise BadStage("the checksum of the header does not match")
    if end + _U64.size + body_len != size:
        raise BadStage(f"{size - end - _U64.size} bytes of body instead of {body_len}")
    key = StageKey(_text(start[_HEAD.size : app_end]), epoch, part, attempt)
    owner = start[app_end:end]
    taken = disk_bytes(key, owner, body_len)
    info = StageInfo(key, created_ms, records, nbytes, taken, owner)
    return _Header(info, end + _U64.size, body_len, body_h)


def _read_rows(file: File, header: _Header) -> list[StagedRow]:
    rows: list[StagedRow] = []
    checksum = xxh3_64()
    rest = b""
    for start in range(0, header.body_len, BUFFER_BYTES):
        size = min(BUFFER_BYTES, header.body_len - start)
        piece = read_exact(file, size, header.size + start)
        checksum.update(piece)
        rest = _take_rows(rest + piece, rows)
    if rest:
        raise BadStage("the last record is incomplete")
    if checksum.intdigest() != header.body_h:
        raise BadStage("the checksum of the records does not match")
    return rows


def _take_rows(buffer: bytes, rows: list[StagedRow]) -> bytes:
    """Append the complete records at the start of `buffer`; returns what is left of it."""
    at = 0
    while len(buffer) - at >= _ROW.size:
        flags, topic_len, node_len, tag_len, data_len, meta_len = _ROW.unpack_from(buffer, at)
        node_at = at + _ROW.size + topic_len
        tag_at = node_at + node_len
        data_at = tag_at + tag_len
        meta_at = data_at + data_len
        end = meta_at + meta_len
        if end - at > MAX_FRAME:  # a damaged length must not gather the whole file in memory
            raise BadStage("a record is longer than the log can take")
        if end > len(buffer):
            break
        rows.append(
            StagedRow(
                _text(buffer[at + _ROW.size : node_at]),
                _text(buffer[node_at:tag_at]) if flags & FLAG_NODE else None,
                _text(buffer[tag_at:data_at]) if flags & FLAG_TAG else None,
                buffer[data_at:meta_at],
                buffer[meta_at:end],
            )
        )
        at = end
    return buffer[at:]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadStage("a name is not UTF-8") from error


def by_topic(stages: Iterable[Stage]) -> dict[str, RecordBatch]:
    """What a commit of these stages appends: per topic the records in order of part and row.

    The order does not depend on the order of `stages`, so that a replay gives every record the
    seq it had.
    """
    rows: dict[str, list[StagedRow]] = {}
    for stage in sorted(stages, key=lambda stage: (stage.info.key.part, stage.info.key.attempt)):
        for row in stage.rows:
            rows.setdefault(row.topic, []).append(row)
    return {topic: _batch(found) for topic, found in rows.items()}


def _batch(rows: list[StagedRow]) -> RecordBatch:
    nodes: list[str | None] = []
    tags: list[str | None] = []
    datas: list[bytes] = []
    metas: list[bytes] = []
    for first in range(0, len(rows), STEP_ROWS):
        # In steps: within one call of zip the interpreter is not given up.
        some = rows[first : first + STEP_ROWS]
        _, some_nodes, some_tags, some_datas, some_metas = zip(*some, strict=True)
        nodes += some_nodes
        tags += some_tags
        datas += some_datas
        metas += some_metas
    return RecordBatch(
        datas,
        metas=metas if any(metas) else None,
        tags=tags if any(tag is not None for tag in tags) else None,
        nodes=nodes if any(node is not None for node in nodes) else None,
    )


# Listing and removing


def list_stages(fs: Fs, data_dir: str) -> StageListing:
    """Every stage by its header, in order of app, epoch, part and attempt.

    A listed stage can still turn out bad when its records are read. A file whose header is not
    sound, or names another stage than its path, is among the damaged.
    """
    stages: list[StageInfo] = []
    damaged: list[str] = []
    for directory in _epoch_dirs(fs, data_dir):
        for name in fs.listdir(directory):
            if layout.parse_stage(name) is None:
                continue
            path = f"{directory}/{name}"
            try:
                stages.append(_info_at(fs, data_dir, path))
            except (BadStage, EOFError):
                damaged.append(path)
    stages.sort(key=lambda info: info.key)
    return StageListing(stages, damaged)


def _info_at(fs: Fs, data_dir: str, path: str) -> StageInfo:
    file = fs.open(path)
    try:
        info = _read_header(file).info
    finally:
        file.close()
    if info.key.path(data_dir) != path:
        raise BadStage(f"{path} holds {info.key}")
    return info


def remove_stage(fs: Fs, data_dir: str, key: StageKey) -> None:
    """Discard one stage; one that is already gone is fine.

    Removals are not synced. A stage that a power loss brings back is as old as before, or its
    epoch as committed as before, and goes again.
    """
    path = key.path(data_dir)
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(path)
    _remove_if_empty(fs, parent_of(path))


def remove_epoch(fs: Fs, data_dir: str, app: str, epoch: int) -> None:
    """Discard every stage of an app's epoch, sound or not; not synced, as in `remove_stage`."""
    directory = f"{data_dir}/{layout.STAGES}/{layout.stage_dir_name(app, epoch)}"
    if not fs.exists(directory):
        return
    for name in fs.listdir(directory):
        if layout.parse_stage(name.removesuffix(TMP_SUFFIX)) is not None:
            fs.unlink(f"{directory}/{name}")
    _remove_if_empty(fs, directory)


def remove_leftovers(fs: Fs, data_dir: str) -> None:
    """Remove what writes and removals that never ended left behind; for a start, before any."""
    for directory in _epoch_dirs(fs, data_dir):
        for name in fs.listdir(directory):
            if name.endswith(TMP_SUFFIX):
                fs.unlink(f"{directory}/{name}")
        _remove_if_empty(fs, directory)


def _epoch_dirs(fs: Fs, data_dir: str) -> Iterator[str]:
    root = f"{data_dir}/{layout.STAGES}"
    if fs.exists(root):
        for name in fs.listdir(root):
            if layout.parse_stage_dir(name) is not None:
                yield f"{root}/{name}"


def _remove_if_empty(fs: Fs, directory: str) -> None:
    if fs.exists(directory) and not fs.listdir(directory):
        fs.rmdir(directory)

"""Looking for erased rows in every byte under a directory.

A Parquet file is decoded: a value that is compressed, or written as the index of a dictionary, is
not to be found in the file's bytes. These are searched as well, for a footer may repeat values.
Every other file is searched as it is, and what is compressed also unpacked. Files count whether a
log names them or not.

    what is looked for            where
    a row with an erased key      Parquet files with the columns `epoch` and `seq`
    a needle                      every column of text of every Parquet file, every other file

A needle is looked for as it is and as JSON would spell it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topics.spark.lake.seqs import KeySet

_PARQUET_MAGIC: Final = b"PAR1"
_CHUNK: Final = 8 << 20
_MAX_NESTING: Final = 3


@dataclass(frozen=True)
class Hit:
    """Something that should not be there. It says where, never what."""

    path: str
    what: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass
class Scanned:
    """How much was looked at, and what was found."""

    files: int = 0
    bytes: int = 0
    decoded_rows: int = 0
    hits: list[Hit] = field(default_factory=list)

    @property
    def found(self) -> int:
        return sum(hit.count for hit in self.hits)


def scan(
    directories: Sequence[str],
    erased: KeySet,
    needles: Sequence[str] = (),
    *,
    progress: Callable[[Scanned], None] = lambda scanned: None,
) -> Scanned:
    """Search every file under the directories; one that is not there has none."""
    search = _Search(erased, needles)
    for directory in directories:
        for path in files_below(directory):
            search.file(path)
            progress(search.scanned)
    return search.scanned


def files_below(directory: str) -> Iterator[str]:
    """Every regular file, in order, links not followed."""
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def spellings(needle: str) -> list[bytes]:
    """The ways a text may stand in a file."""
    plain = [needle, json.dumps(needle, ensure_ascii=False)[1:-1], json.dumps(needle)[1:-1]]
    twice = [json.dumps(text)[1:-1] for text in plain]  # JSON text within a JSON log
    return sorted({text.encode() for text in [*plain, *twice]})


class _Search:
    def __init__(self, erased: KeySet, needles: Sequence[str]) -> None:
        self.scanned = Scanned()
        self._erased = erased
        self._needles = [spellings(needle) for needle in needles if needle]
        longest = (len(text) for texts in self._needles for text in texts)
        self._overlap = max(longest, default=1) - 1

    def file(self, path: str) -> None:
        self.scanned.files += 1
        self.scanned.bytes += os.path.getsize(path)
        with open(path, "rb") as file:
            head = file.read(len(_PARQUET_MAGIC))
            self._raw(path, "", file)
        if head == _PARQUET_MAGIC:
            self._parquet(path)
        elif self._needles:
            self._packed(path)

    # As they are

    def _raw(self, path: str, inside: str, file: io.BufferedIOBase | io.RawIOBase) -> None:
        if not self._needles:
            return
        file.seek(0)
        rest = b""
        missed = dict(enumerate(self._needles))
        while missed and (chunk := file.read(_CHUNK)):
            text = rest + chunk
            for number in [n for n, texts in missed.items() if any(t in text for t in texts)]:
                del missed[number]
                self._hit(path, f"needle {number + 1}{inside}")
            rest = text[len(text) - self._overlap :] if self._overlap else b""

    def _packed(self, path: str, nesting: int = 0) -> None:
        with open(path, "rb") as file:
            raw = file.read()
        for name, unpacked in _unpack(raw, nesting):
            self._raw(path, f", unpacked ({name})", io.BytesIO(unpacked))

    # Decoded

    def _parquet(self, path: str) -> None:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=65_536):
                    self.scanned.decoded_rows += batch.num_rows
                    self._keys(path, batch)
                    for number, texts in enumerate(self._needles, 1):
                        count = sum(_rows_with(column, texts) for column in batch.columns)
                        if count:
                            self._hit(path, f"needle {number}, decoded", count)
        except (pa.ArrowException, OSError) as error:
            # Cut short by a crash: not readable as a table, but its bytes may be personal data.
            self._hit(path, f"cannot be decoded ({type(error).__name__}); remove it")

    def _keys(self, path: str, batch: pa.RecordBatch) -> None:
        if not {"epoch", "seq"} <= set(batch.schema.names) or "last_seq" in batch.schema.names:
            return
        epochs, seqs = (
            batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
            for name in ("epoch", "seq")
        )
        hit = self._erased.mask(epochs, seqs)
        if hit.any():
            self._hit(path, f"erased row, first seq {int(seqs[hit][0])}", int(hit.sum()))

    def _hit(self, path: str, what: str, count: int = 1) -> None:
        self.scanned.hits.append(Hit(path, what, count))


def _rows_with(column: pa.Array, texts: Sequence[bytes]) -> int:
    """In how many rows one of the texts occurs, in columns of text wherever they are nested."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _rows_with(column.cast(kind.value_type), texts)
    if pa.types.is_struct(kind):
        return sum(_rows_with(part, texts) for part in column.flatten())
    if pa.types.is_map(kind):
        return _rows_with(column.keys, texts) + _rows_with(column.items, texts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _rows_with(column.flatten(), texts)
    if not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return 0
    found = pa.scalar(False)
    for text in texts:
        found = pc.or_kleene(found, pc.match_substring(column.cast(pa.large_binary()), text))
    return int(pc.sum(pc.fill_null(found, False)).as_py() or 0)


def _unpack(raw: bytes, nesting: int) -> Iterator[tuple[str, bytes]]:
    """What a file unpacks to, and what that unpacks to."""
    if nesting >= _MAX_NESTING:
        return
    for magic, name, unpack in _PACKERS:
        if raw.startswith(magic):
            try:
                parts = unpack(raw)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException):
                continue  # only looked like it
            except zipfile.BadZipFile:
                continue
            for part in parts:
                yield name, part
                yield from _unpack(part, nesting + 1)


def _with_arrow(codec: str) -> Callable[[bytes], list[bytes]]:
    def unpack(raw: bytes) -> list[bytes]:
        with pa.CompressedInputStream(pa.BufferReader(raw), codec) as stream:
            return [stream.read()]

    return unpack


def _unzip(raw: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return [archive.read(name) for name in archive.namelist()]


def _lz4_blocks(raw: bytes) -> list[bytes]:
    """The framing of lz4-java, in which Spark keeps the state of its queries."""
    parts, at = [], 0
    while at + 21 <= len(raw) and raw[at : at + 8] == b"LZ4Block":
        packed, plain = (int.from_bytes(raw[at + n : at + n + 4], "little") for n in (9, 13))
        body = raw[at + 21 : at + 21 + packed]
        is_stored = raw[at + 8] & 0xF0 == 0x10
        if plain:
            codec = pa.Codec("lz4_raw")
            parts.append(body if is_stored else codec.decompress(body, plain, asbytes=True))
        at += 21 + packed
    return [b"".join(parts)]


_PACKERS: Final[list[tuple[bytes, str, Callable[[bytes], list[bytes]]]]] = [
    (b"\x1f\x8b", "gzip", lambda raw: [gzip.decompress(raw)]),
    (b"\x28\xb5\x2f\xfd", "zstd", _with_arrow("zstd")),
    (b"\x04\x22\x4d\x18", "lz4", _with_arrow("lz4")),
    (b"LZ4Block", "lz4 blocks", _lz4_blocks),
    (b"BZh", "bzip2", lambda raw: [bz2.decompress(raw)]),
    (b"\xfd7zXZ", "xz", lambda raw: [lzma.decompress(raw)]),
    (b"PK\x03\x04", "zip", _unzip),
]

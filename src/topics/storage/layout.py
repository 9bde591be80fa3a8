"""Names in a data directory, both ways: from numbers to names and back.

    <data_dir>/
      .topics.lock                        who has the directory open
      FORMAT                              store identity and versions
      meta/snapshot.0007.bin              newest two snapshots
      meta/TRIMMED                        the log alone is no longer complete
      meta/erasures/0000000000000001.json receipts of erasures; .begun while one is under way
      wal/CURRENT                         one group of log files: flat with one shard ...
      wal/wal-0000000000001024.log
      wal/shard-00/...                    ... or a directory per shard
      topics/0000000A/seg-0000000000000001.data, .idx, .tag
      topics/0000000A/seg-0000000000000001-1.data, .idx, .tag   written anew by an erasure
      topics/0000000A.deleted/            a dropped topic waiting to be removed
      stages/<16 hex>-<epoch>/<part>-<attempt>.stage
      quarantine/<utc>-<name>             damaged files, kept for the operator
    <cold_dir>/
      .topics-cold                        whose cold directory this is
      topics/0000000A/...                 as above

Numbers are padded for the eye only: they are parsed as numbers and may outgrow their width. A
parser answers None for every name its maker would not have made, so one number has one name and
a stray file is never taken for ours. User text never becomes part of a path.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from topics.storage.checksum import h64

LOCK: Final = ".topics.lock"
FORMAT: Final = "FORMAT"
META: Final = "meta"
TRIMMED: Final = "TRIMMED"
ERASURES: Final = "erasures"
WAL: Final = "wal"
CURRENT: Final = "CURRENT"
WAL_SPARE: Final = "wal-spare.tmp"
TOPICS: Final = "topics"
STAGES: Final = "stages"
QUARANTINE: Final = "quarantine"
COLD_MARKER: Final = ".topics-cold"

FLAT_GROUP: Final = ""
"""Key of the log group that lies in `wal/` itself."""

SegmentPart: TypeAlias = Literal["data", "idx", "tag"]
SEGMENT_PARTS: Final[tuple[SegmentPart, ...]] = get_args(SegmentPart)

_MAX_U64: Final = (1 << 64) - 1


def _number(digits: str, *, width: int, base: int = 10) -> int | None:
    """The number, if padding it to `width` gives back exactly these digits."""
    value = int(digits, base)
    padded = f"{value:0{width}X}" if base == 16 else f"{value:0{width}d}"
    return value if padded == digits and value <= _MAX_U64 else None


def _only_number(pattern: re.Pattern[str], name: str, *, width: int, base: int = 10) -> int | None:
    found = pattern.fullmatch(name)
    return _number(found[1], width=width, base=base) if found else None


# Topics and their segments

_TOPIC = re.compile(r"([0-9A-F]{8,16})")
_DELETED_TOPIC = re.compile(r"([0-9A-F]{8,16})\.deleted")
_SEGMENT = re.compile(r"seg-([0-9]{16,20})(?:-([1-9][0-9]*))?\.(data|idx|tag)")


def topic_name(topic_id: int) -> str:
    return f"{topic_id:08X}"


def deleted_topic_name(topic_id: int) -> str:
    """Name of a dropped topic's directory until it is removed."""
    return f"{topic_id:08X}.deleted"


def parse_topic(name: str) -> int | None:
    """The topic whose directory this is; None also for a dropped one's."""
    return _only_number(_TOPIC, name, width=8, base=16)


def parse_deleted_topic(name: str) -> int | None:
    return _only_number(_DELETED_TOPIC, name, width=8, base=16)


def segment_name(first_seq: int, part: SegmentPart, version: int = 0) -> str:
    """Name of a segment file; `version` tells how often an erasure wrote the segment anew."""
    written_anew = f"-{version}" if version else ""
    return f"seg-{first_seq:016d}{written_anew}.{part}"


def parse_segment(name: str) -> tuple[int, SegmentPart, int] | None:
    """First seq, part and version of a segment file."""
    found = _SEGMENT.fullmatch(name)
    first_seq = _number(found[1], width=16) if found else None
    if not found or first_seq is None:
        return None
    part: SegmentPart = found[3]  # type: ignore[assignment]  # the pattern allows only parts
    return first_seq, part, int(found[2] or 0)


def topic_dir(root: str, topic_id: int) -> str:
    """A topic's directory; `root` is the data or the cold directory."""
    return f"{root}/{TOPICS}/{topic_name(topic_id)}"


def deleted_topic_dir(root: str, topic_id: int) -> str:
    return f"{root}/{TOPICS}/{deleted_topic_name(topic_id)}"


# The log

_WAL = re.compile(r"wal-([0-9]{16,20})\.log")
_GROUP = re.compile(r"shard-([0-9]{2,5})")


@lru_cache(maxsize=4096)
def shard_of(topic_id: int, shards: int) -> int:
    """The shard that logs a topic; frames of no topic (id 0) go to the first."""
    return h64(topic_id.to_bytes(8, "little")) % shards if topic_id and shards > 1 else 0


def group_key(shard: int, shards: int) -> str:
    """Key of a shard's group: its directory under `wal/`, empty for a single shard."""
    return FLAT_GROUP if shards == 1 else f"shard-{shard:02d}"


def parse_group(name: str) -> int | None:
    return _only_number(_GROUP, name, width=2)


def group_dir(data_dir: str, key: str) -> str:
    return f"{data_dir}/{WAL}/{key}" if key else f"{data_dir}/{WAL}"


def wal_name(first_lfn: int) -> str:
    """Name of the log file whose first frame has this ordinal."""
    return f"wal-{first_lfn:016d}.log"


def parse_wal(name: str) -> int | None:
    return _only_number(_WAL, name, width=16)


def wal_path(directory: str, first_lfn: int) -> str:
    """A log file in its group's directory."""
    return f"{directory}/{wal_name(first_lfn)}"


# Snapshots, stages, quarantine

_SNAPSHOT = re.compile(r"snapshot\.([0-9]{4,20})\.bin")
_ERASURE = re.compile(r"([0-9]{16,20})\.(json|begun)")
_STAGE_DIR = re.compile(r"([0-9a-f]{16})-([0-9]{1,20})")
_STAGE = re.compile(r"([0-9]{1,20})-([0-9]{1,20})\.stage")


def snapshot_name(number: int) -> str:
    return f"snapshot.{number:04d}.bin"


def parse_snapshot(name: str) -> int | None:
    return _only_number(_SNAPSHOT, name, width=4)


def snapshot_path(data_dir: str, number: int) -> str:
    return f"{data_dir}/{META}/{snapshot_name(number)}"


def erasure_name(number: int, *, begun: bool = False) -> str:
    """Name of the receipt of an erasure, or of the note that it has begun."""
    return f"{number:016d}.{'begun' if begun else 'json'}"


def parse_erasure(name: str) -> tuple[int, bool] | None:
    """Number of an erasure, and whether the file only notes that it has begun."""
    found = _ERASURE.fullmatch(name)
    number = _number(found[1], width=16) if found else None
    return (number, found[2] == "begun") if found and number is not None else None


def stage_dir_name(app: str, epoch: int) -> str:
    """Name of the directory of one app's staged epoch; the app's own name is not used."""
    return f"{h64(app.encode()):016x}-{epoch}"


def parse_stage_dir(name: str) -> tuple[int, int] | None:
    """H64 of the app and the epoch."""
    found = _STAGE_DIR.fullmatch(name)
    epoch = _number(found[2], width=1) if found else None
    return (int(found[1], 16), epoch) if found and epoch is not None else None


def stage_name(part: int, attempt: int) -> str:
    return f"{part}-{attempt}.stage"


def parse_stage(name: str) -> tuple[int, int] | None:
    """Part and attempt of a staged file."""
    found = _STAGE.fullmatch(name)
    if not found:
        return None
    part, attempt = _number(found[1], width=1), _number(found[2], width=1)
    return None if part is None or attempt is None else (part, attempt)


def stage_path(data_dir: str, *, app: str, epoch: int, part: int, attempt: int) -> str:
    return f"{data_dir}/{STAGES}/{stage_dir_name(app, epoch)}/{stage_name(part, attempt)}"


def quarantine_name(name: str, *, now_ms: int) -> str:
    """Name under which a damaged file is kept: when it was put away, then what it was."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{now_ms % 1000:03d}Z-{name.replace('/', '-')}"

"""Starting to write: one fresh file in every group of the configured layout."""

from collections.abc import Callable, Mapping

import msgspec

from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.fs import Fs, parent_of
from topics.storage.handles import Handles
from topics.storage.sources import Ring, Sources
from topics.storage.wal.files import Link, Writer
from topics.storage.wal.rotation import ShardSetup
from topics.storage.wal.settings import WalSettings
from topics.storage.wal.shard import Shard

FIRST_LINK = Link(1, 0, 0)
"""Where a group begins that never had a file."""


class Generation(msgspec.Struct, frozen=True):
    """One run of the program as its log files name it."""

    store_id: bytes
    number: int
    shards: int


def open_shards(
    fs: Fs,
    data_dir: str,
    generation: Generation,
    links: Mapping[str, Link],
    *,
    settings: WalSettings,
    sources: Sources,
    handles: Handles,
    monotonic_ns: Callable[[], int],
) -> list[Shard]:
    """Writers for all shards; their first files are durable and named by CURRENT.

    `links` says by group key how each group goes on (`GroupScan.next_link`). `RefusedToOpen` on
    any error: what was created so far holds no frames and is replaced by the next try.
    """
    shards: list[Shard] = []
    ring_bytes = settings.cache_bytes // generation.shards
    try:
        for number in range(generation.shards):
            key = layout.group_key(number, generation.shards)
            directory = layout.group_dir(data_dir, key)
            writer = Writer(
                generation.store_id, fs.boot_id(), generation.number, number, generation.shards
            )
            make_durable_dir(fs, directory)
            shards.append(
                Shard(
                    ShardSetup(
                        fs,
                        directory,
                        writer,
                        links.get(key, FIRST_LINK),
                        settings,
                        sources,
                        handles,
                        monotonic_ns,
                        Ring(ring_bytes) if ring_bytes else None,
                    )
                )
            )
    except BaseException as error:
        for shard in shards:
            shard.release()
        if not isinstance(error, OSError):
            raise
        message = f"{directory}: cannot begin a log file ({error}); check the disk"
        raise RefusedToOpen("io_error", message=message, file=directory) from error
    return shards


def make_durable_dir(fs: Fs, path: str) -> None:
    """Create a directory and make its name, and those of new parents, durable.

    Also an existing directory: the process that made it may have died before its name was synced.
    """
    for changed in {*map(parent_of, fs.mkdirs(path)), parent_of(path)}:
        fs.sync_dir(changed)

"""The cold directory: required when segments are in it, marked as ours before they are.

A cold directory that is not mounted is no loss, so its records are not announced as lost: the start
is refused.
"""

from __future__ import annotations

from topics.core.catalog import Catalog
from topics.engine.reads.history import SegmentHistory
from topics.errors import RefusedToOpen
from topics.storage import layout
from topics.storage.fs import TMP_SUFFIX, Fs, parent_of
from topics.storage.segments.segment import COLD, Segment
from topics.storage.segments.store import SegmentStore
from topics.storage.segments.tiering import check_cold_dir, claim_cold_dir


def require_cold_dir(store: SegmentStore, catalog: Catalog, store_id: bytes) -> None:
    """Refuse without the cold directory that segments are in."""
    fs, cold_dir = store.fs, store.cold_dir
    if cold_dir is not None and fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        check_cold_dir(fs, cold_dir, store_id)
    elif _has_cold_segments(catalog):
        if cold_dir is not None:
            check_cold_dir(fs, cold_dir, store_id)
        raise RefusedToOpen(
            "cold_missing",
            message="this store has segments in a cold directory; set cold_dir or TOPICS_COLD_DIR",
            file=store.data_dir,
        )


def _has_cold_segments(catalog: Catalog) -> bool:
    return any(
        isinstance(part, Segment) and part.tier == COLD
        for topic in catalog
        if isinstance(topic.history, SegmentHistory)
        for part in topic.history.parts
    )


UNFINISHED_CLAIM = frozenset({layout.TOPICS, f"{layout.COLD_MARKER}{TMP_SUFFIX}"})
"""What is in a cold directory when the program died while it was claiming it."""


def prepare_cold_dir(fs: Fs, cold_dir: str | None, store_id: bytes) -> None:
    """Create a missing cold directory; refuse one that has contents but no marker."""
    if cold_dir is None or fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        return
    topics = f"{cold_dir}/{layout.TOPICS}"
    strangers = set(fs.listdir(cold_dir)) - UNFINISHED_CLAIM if fs.exists(cold_dir) else set()
    if strangers or (fs.exists(topics) and fs.listdir(topics)):
        check_cold_dir(fs, cold_dir, store_id)
    for created in fs.mkdirs(topics):
        fs.sync_dir(parent_of(created))


def mark_cold_dir(fs: Fs, cold_dir: str | None, store_id: bytes) -> None:
    """Make a prepared cold directory ours."""
    if cold_dir is not None and not fs.exists(f"{cold_dir}/{layout.COLD_MARKER}"):
        claim_cold_dir(fs, cold_dir, store_id)

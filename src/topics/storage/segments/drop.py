"""Removing segments and whole topics from both tiers.

The caller has made durable before that nothing needs the files any more, so every step here may be
lost in a crash and done again: what is already gone is no error. What the disk refuses to remove
is reported and stays for the next pass; it is not served meanwhile, because the metadata no longer
names it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import suppress

from topics.storage import layout
from topics.storage.crashpoints import crashpoint
from topics.storage.fs import TMP_SUFFIX
from topics.storage.segments.segment import label_of
from topics.storage.segments.store import SegmentStore

UNLINKS_PER_STEP = 16
TOPICS_PER_STEP = 64


def drop_segment(
    store: SegmentStore, topic_id: int, label: int
) -> Generator[None, None, list[OSError]]:
    """Unlink a dead segment in both tiers; return what could not be done."""
    errors: list[OSError] = []
    store.forget(topic_id, label)
    store.distrusted.discard((topic_id, label))
    for tier in store.tiers:
        files = store.files(topic_id, label, tier)
        removed = _removed(store, files.data, errors)
        crashpoint("drop.data_unlinked")
        removed |= _removed(store, files.idx, errors)
        removed |= _removed(store, files.tag, errors)
        if removed:
            _sync_dir(store, files.directory, errors)
        yield
    return errors


def drop_unreferenced(
    store: SegmentStore, topic_id: int, labels: Collection[int]
) -> Generator[None, None, int]:
    """Unlink the files of a topic's directories that belong to none of its segments.

    They are leftovers of checkpoints and relocations that were given up, temporary files
    included. Files that are not ours are left alone. Returns how many went; errors pass through.
    """
    count = 0
    for tier in store.tiers:
        directory = store.files(topic_id, 0, tier).directory
        unwanted = [name for name in _names(store, directory) if _is_unwanted(name, labels)]
        for name in unwanted:
            path = f"{directory}/{name}"
            store.handles.forget(path)
            store.fs.unlink(path)
            count += 1
            if count % UNLINKS_PER_STEP == 0:
                yield
        if unwanted:
            store.fs.sync_dir(directory)
        yield
    return count


def retire_topics(store: SegmentStore, topic_ids: Collection[int]) -> Generator[None, None, None]:
    """Give the directories of dropped topics their deleted name, in both tiers.

    The files stay readable under it until `remove_topic`. Errors pass through; call again.
    """
    for root in store.roots:
        topics = f"{root}/{layout.TOPICS}"
        for i, topic_id in enumerate(topic_ids, 1):
            source = layout.topic_dir(root, topic_id)
            if store.fs.exists(source):  # many never had one
                store.unsynced_dirs.add(topics)
                store.fs.rename(source, layout.deleted_topic_dir(root, topic_id))
                store.retired(topic_id, root=root)
            if i % TOPICS_PER_STEP == 0:
                yield
        if topics in store.unsynced_dirs:
            store.fs.sync_dir(topics)
            store.unsynced_dirs.discard(topics)
            crashpoint("topic.renamed")
        yield


def find_retired(store: SegmentStore) -> None:
    """Note which topic directories already have their deleted name."""
    for root in store.roots:
        for name in _names(store, f"{root}/{layout.TOPICS}"):
            topic_id = layout.parse_deleted_topic(name)
            if topic_id is not None:
                store.retired(topic_id, root=root)


def remove_topic(store: SegmentStore, topic_id: int) -> Generator[None, None, list[OSError]]:
    """Remove the deleted directories of a topic with all they hold; return what could not be."""
    errors: list[OSError] = []
    for root in store.roots:
        directory = layout.deleted_topic_dir(root, topic_id)
        if not store.fs.exists(directory):
            continue
        for i, name in enumerate(_names(store, directory), 1):
            path = f"{directory}/{name}"
            store.handles.forget(path)
            _removed(store, path, errors)
            if i % UNLINKS_PER_STEP == 0:
                yield
        if not errors:
            try:
                store.fs.rmdir(directory)
            except OSError as error:
                errors.append(error)
            else:
                store.unsynced_dirs.discard(directory)
                _sync_dir(store, f"{root}/{layout.TOPICS}", errors)
        yield
    if not errors:
        store.dropped_topics.difference_update([(root, topic_id) for root in store.roots])
    return errors


def _is_unwanted(name: str, labels: Collection[int]) -> bool:
    if name.endswith(TMP_SUFFIX):
        return layout.parse_segment(name.removesuffix(TMP_SUFFIX)) is not None
    found = layout.parse_segment(name)
    return found is not None and label_of(found[0], found[2]) not in labels


def _names(store: SegmentStore, directory: str) -> list[str]:
    with suppress(FileNotFoundError):
        return store.fs.listdir(directory)
    return []


def _removed(store: SegmentStore, path: str, errors: list[OSError]) -> bool:
    try:
        store.fs.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        errors.append(error)
        return False
    return True


def _sync_dir(store: SegmentStore, directory: str, errors: list[OSError]) -> None:
    try:
        store.fs.sync_dir(directory)
    except OSError as error:
        errors.append(error)

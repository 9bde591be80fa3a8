"""`topics dump`: the records of a topic as JSON lines."""

from __future__ import annotations

import sys

import msgspec

import topics
from topics.cli._output import stored_json
from topics.wire.rendering import EVERYTHING, render_records, rows_of

PAGE_RECORDS = 1000


def run(directory: str, topic: str, *, after: int, limit: int | None, cold_dir: str | None) -> int:
    """Print until the topic's end as it was when the command began, or until `limit`."""
    left = limit
    out = sys.stdout.buffer
    with topics.open(directory, read_only=True, cold_dir=cold_dir) as log:
        while left is None or left > 0:
            wanted = PAGE_RECORDS if left is None else min(left, PAGE_RECORDS)
            page = log.read(topic, after=after, limit=wanted)
            if page.tombstone is not None:
                out.write(msgspec.json.encode({"tombstone": page.tombstone.to_dict()}) + b"\n")
            for row in rows_of(page.records):
                line = render_records([row], EVERYTHING)[1:-1]
                out.write(stored_json(line.decode()).encode() + b"\n")
            if left is not None:
                left -= len(page.records)
            after = page.next_from_seq
            if page.caught_up:
                break
        else:
            log.state(topic)  # a limit of 0 still tells whether the topic exists
    return 0

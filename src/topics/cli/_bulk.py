"""How the bulk jobs of `topics spark` print what they did."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from topics.cli._output import print_table, safe, size, style
from topics.errors import NotFound, RefusedToOpen

if TYPE_CHECKING:
    from topics.client.targets import Target
    from topics.spark.bulk.auditing import Audited


def existing(directory: str) -> str:
    """A directory as an absolute path; it has to be there."""
    where = os.path.abspath(directory)
    if not os.path.exists(where):
        raise NotFound(f"the directory {where}")
    if not os.path.isdir(where):
        message = f"{where} is a file; give a directory"
        raise RefusedToOpen("format", message=message, file=where)
    return where


def server_of(target: Target) -> Target:
    """A target that is a server, for jobs that need one."""
    if target.url is None:
        raise click.UsageError(
            f"this job writes through a server, and {target} is a directory; use --url"
        )
    return target


def print_audit(found: Audited) -> None:
    for note in found.notes:
        print(f"note: {safe(str(note))}")
    for finding in found.damage:
        print(style(safe(f"damaged: {finding}"), "red"))
    if found.topics:
        print_table(
            ("topic", "written", "live", "deleted", "lost", "skipped", "verdict"),
            [
                (
                    topic.account.topic,
                    topic.account.written,
                    topic.account.live,
                    topic.account.deleted,
                    topic.account.lost_cap + topic.account.lost_ttl + topic.account.lost_crash,
                    topic.account.skipped + topic.account.source_trim,
                    "ok" if topic.ok else "DAMAGED",
                )
                for topic in found.topics
            ],
        )
    verdict = "all sound" if found.ok else f"{len(found.damage)} damaged"
    print(
        f"{found.files} files, {size(found.bytes)}, {found.log_frames} log frames, "
        f"{found.segment_records} segment records in {found.tasks} tasks: {verdict}"
    )

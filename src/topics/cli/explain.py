"""`topics explain`: the story behind a gap, a lag or a stuck job."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from topics.cli import _output as out
from topics.cli._completing import complete_topic
from topics.cli._exit import OK
from topics.cli._options import Where, on_a_log
from topics.cli._types import checked_seq

if TYPE_CHECKING:
    from topics.client.interface import AnyLog
    from topics.wire.stories import Story


@click.command(context_settings={"allow_extra_args": True})
@click.argument(
    "subject", metavar="TOPIC | TOPIC/CURSOR | TOPIC#SEQ", shell_complete=complete_topic
)
@on_a_log
def explain(where: Where, *, subject: str, as_json: bool) -> int:
    """Say what happened, since when, and the one command that helps.

    \b
      topics explain orders            what it lost, who is behind, what is stuck
      topics explain orders/billing    a consumer: its lag, and what it missed
      topics explain 'orders#17'       one record or job: where it is, or went
    """
    rest = click.get_current_context().args
    if rest:
        seq_or_cursor = f"{'#' if rest[0].isdecimal() else '/'}{rest[0]}"
        raise click.UsageError(f"write it as one word: '{subject}{seq_or_cursor}'")
    tell = _teller(subject)
    with where.reading() as log:
        story = tell(log)
    if as_json:
        facts = story.to_dict()
        facts["command"] = _advice(story, where)
        out.print_json(facts)
        return OK
    print(out.safe(story.opening))
    for finding in sorted(story.findings, key=lambda finding: -finding.weight):
        print(f"- {out.safe(str(finding))}")
    advice = _advice(story, where)
    if advice is not None:
        print(f"Try: {out.style(out.safe(advice), 'bold')}")
    return OK


def _advice(story: Story, where: Where) -> str | None:
    """The one command that helps, to be typed as it is where the directory is known."""
    from topics.cli._stories import VERIFY  # noqa: PLC0415 - as below

    if story.command == VERIFY:
        return f"{VERIFY} {shlex.quote(where.target().path or 'DATA_DIR')}"
    return f"{story.command}{where.spelled()}" if story.command else None


def _teller(subject: str) -> Callable[[AnyLog], Story]:
    """What finds out about a subject, once there is a log to ask."""
    from topics.cli import _stories  # noqa: PLC0415 - help does without

    topic, slash, cursor = subject.partition("/")
    if slash:
        if not topic or not cursor:
            raise click.UsageError(f"{subject!r} lacks a name; write it like 'orders/billing'")
        return partial(_stories.of_cursor, topic=topic, name=cursor)
    topic, mark, seq = subject.partition("#")
    if not mark:
        return partial(_stories.of_topic, topic=topic)
    if not seq.isdecimal() or int(seq) == 0:
        raise click.UsageError(f"{seq!r} is no seq; write it like 'orders#17'")
    return partial(_stories.of_seq, topic=topic, seq=checked_seq(int(seq)))

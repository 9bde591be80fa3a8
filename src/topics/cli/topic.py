"""`topics ls`, `describe`, `create`, `config`, `drop`: topics as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import click

from topics.cli import _output as out
from topics.cli._exit import NO, OK
from topics.cli._options import Where, ask, on_a_log, topic_argument, yes_option
from topics.cli._types import setting_defaults, settings_argument
from topics.cli.queue import Dead
from topics.errors import TopicExists, TopicNotFound
from topics.values import Configured, Created, Eviction, TopicState, TopicSummary

if TYPE_CHECKING:
    from topics.topic_settings import TopicSettings

_settings = settings_argument()
NOTHING_DROPPED = "nothing was dropped"


@click.command()
@click.argument("prefix", default="")
@click.option("--details", is_flag=True, help="Add type, durability, lost records and jobs.")
@on_a_log
def ls(where: Where, *, prefix: str, details: bool, as_json: bool) -> int:
    """List topics, all or those whose names begin with PREFIX."""
    with where.reading() as log:
        found = log.topics(prefix=prefix, details=details)
    if as_json:
        out.print_json({"topics": [topic.to_dict() for topic in found]})
    elif found:
        out.print_table(
            ["topic", "head", "earliest", "records", "size", *(_DETAILS if details else ())],
            (
                [t.topic, t.head_seq, t.earliest_seq, t.count, _short_size(t.bytes)]
                + (_detail_cells(t) if details else [])
                for t in found
            ),
        )
    else:
        click.echo("no topics" + (f" that begin with {prefix}" if prefix else ""), err=True)
    return OK


_DETAILS = ("type", "durability", "lost", "ready", "leased", "dead")


def _detail_cells(line: TopicSummary) -> list[object]:
    jobs = line.queue
    counts = [None] * 3 if jobs is None else [jobs.ready, jobs.in_flight, jobs.dead]
    return [line.type, line.durability, line.lost, *counts]


@click.command()
@topic_argument
@on_a_log
def describe(where: Where, *, topic: str, as_json: bool) -> int:
    """Show the state of TOPIC: how far it is, what it holds, how it is set up."""
    with where.reading() as log:
        state = log.state(topic, touch=False)
        dead = Dead.of(log, state)
    if as_json:
        out.print_json(state.to_dict())
    else:
        out.print_facts(_state_facts(state, dead))
        print()
        _print_settings(state.config)
    return OK


def _state_facts(state: TopicState, dead: Dead) -> dict[str, object]:
    facts: dict[str, object] = {
        "topic": state.topic,
        "type": state.type,
        "head": state.head_seq,
        "earliest": state.earliest_seq,
        "records": state.count,
        "size": out.size(state.bytes),
        "last write": out.moment(state.last_write_ts),
        "last read": out.moment(state.last_read_ts),
    }
    if state.queue is not None:
        facts |= {
            "ready": state.queue.ready,
            "in flight": state.queue.in_flight,
            "delayed": state.count - state.queue.ready - state.queue.in_flight,
            "dead letters": str(dead),
        }
    return facts


class _WithSettings(click.Command):
    """A command with settings; a setting that is given as an option gets a hint."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if name not in setting_defaults():
                raise
            ctx.fail(
                f"No such option {error.option_name!r}. Settings have no dashes: write {name}=VALUE"
            )


@click.command(cls=_WithSettings)
@topic_argument
@_settings
@click.option(
    "--if-missing", is_flag=True, help="Do not fail if the topic exists with other settings."
)
@on_a_log
def create(
    where: Where,
    *,
    topic: str,
    settings: dict[str, Any],
    if_missing: bool,
    as_json: bool,
) -> int:
    """Create TOPIC, with settings like ttl_ms=7d cap_bytes=1GiB durability=fsync type=queue.

    A topic that exists stays as it is. If it has other values for the settings you name, the
    command fails and shows the difference. `topics config` changes a topic.
    """
    with where.writing(may_create=True) as log:
        try:
            made = log.create(topic, **cast("TopicSettings", settings))
        except TopicExists:
            if not if_missing:
                raise
            made = Created(topic, False, log.state(topic, touch=False).config)
    out.tell(
        made.to_dict(),
        f"created {topic}" if made.created else f"{topic} exists already, nothing changed",
        as_json=as_json,
    )
    return OK


@click.command(cls=_WithSettings)
@topic_argument
@_settings
@yes_option
@on_a_log
def config(where: Where, *, topic: str, settings: dict[str, Any], yes: bool, as_json: bool) -> int:
    """Show the settings of TOPIC, or change some: ttl_ms=7d cap_records=1000 dead_letter=

    Settings that are not named stay as they are; an empty value brings back the default. A
    tighter limit evicts records at once. The command says how many, and asks first.
    """
    if not settings:
        with where.reading() as log:
            now = dict(log.state(topic, touch=False).config)
        if as_json:
            out.print_json({"topic": topic, "config": now})
        else:
            _print_settings(now)
        return OK
    with where.writing() as log:
        changes = cast("TopicSettings", settings)
        loss = log.configure(topic, dry_run=True, **changes).evicted
        if loss.records and not ask(_loss(topic, loss), yes=yes):
            return NO
        done = log.configure(topic, **changes)
    if as_json:
        out.print_json(done.to_dict())
    else:
        _print_changes(done)
    return OK


def _print_changes(done: Configured) -> None:
    for name, (was, now) in done.changes.items():
        if name == "durable":
            continue  # says what `durability` says
        before, after = (out.safe(_plain(value) or "none") for value in (was, now))
        words = _in_words(name, now)
        print(f"{name}: {before} -> {after}" + (f" ({words})" if words else ""))
    if not done.changes:
        print(f"{done.topic} has these settings already")
    if done.evicted.records:
        records = out.counted(done.evicted.records, "record")
        print(f"evicted {records} ({out.size(done.evicted.bytes)})")


def _short_size(count: int) -> str:
    """Bytes as one word, so that columns can be cut."""
    return out.size(count).replace(" ", "")


def _print_settings(config: Mapping[str, object]) -> None:
    """What `topics config` can set. `durable` says what `durability` says."""
    from topics.topic_settings import known  # noqa: PLC0415 - help does without

    defaults = setting_defaults()
    of_queues = {name for name, setting in known().items() if setting.is_for_queues}
    idle = {"durable"} | (of_queues if config["type"] != "queue" else set())
    shown = {name: value for name, value in config.items() if name not in idle}
    width = max(map(len, shown)) + 2
    for name, value in shown.items():
        notes = [_in_words(name, value), "" if value == defaults.get(name) else "changed"]
        remark = ", ".join(filter(None, notes))
        print(f"{name:<{width}}{out.safe(_plain(value))}" + (f"  ({remark})" if remark else ""))


def _in_words(name: str, value: object) -> str:
    """A long number in units; empty where it has none."""
    if not isinstance(value, int) or value < 1000:
        return ""
    if name.endswith("_ms"):
        return out.span(value / 1000)
    return out.size(value) if name == "cap_bytes" else ""


def _plain(value: object) -> str:
    """A value as `topics config` takes it back."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _loss(topic: str, loss: Eviction) -> str:
    records = out.counted(loss.records, "record")
    return f"{records} of {topic} ({out.size(loss.bytes)}) would go at once. Go on?"


@click.command()
@topic_argument
@click.option("--if-empty", is_flag=True, help="Only a topic without records.")
@yes_option
@on_a_log
def drop(where: Where, *, topic: str, if_empty: bool, yes: bool, as_json: bool) -> int:
    """Remove TOPIC with all its records, cursors and the routers that touch it."""
    with where.writing() as log:
        try:
            state = log.state(topic, touch=False)
        except TopicNotFound as error:
            raise TopicNotFound(topic, so=NOTHING_DROPPED) from error
        records = out.counted(state.count, "record")
        question = f"Drop {topic} with {records} on {where.target()}? This cannot be undone."
        if not ask(question, yes=yes):
            return NO
        gone = log.drop(topic, if_empty=if_empty)
        if not gone.deleted:
            raise TopicNotFound(topic, so=NOTHING_DROPPED)  # another client dropped it first
    removed = gone.routers_removed
    word = "router" if len(removed) == 1 else "routers"
    routers = f" and {word} {', '.join(removed)}" if removed else ""
    out.tell(gone.to_dict(), f"dropped {topic}{out.safe(routers)}", as_json=as_json)
    return OK

"""Values as people type them: lengths of time, sizes, moments, settings of a topic."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from topics.topic_settings import U64_MAX

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
DAY_MS = _UNITS_MS["d"]
_DAYS_AGO = {"today": 0, "yesterday": 1}
_AMOUNT = re.compile(r"(\d+)\s*([A-Za-z]*)")


class _Seq(click.IntRange):
    """A seq. A number that is too large is refused here, so that a server and a directory give the
    same answer. The upper end is in the error and not in every help text."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as in the base class
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        seq: int = super().convert(value, param, ctx)
        return checked_seq(seq)


SEQ = _Seq(min=0)


def checked_seq(seq: int) -> int:
    """The seq, if it is in the range of seqs."""
    if seq > U64_MAX:
        raise click.BadParameter(f"{seq} is no seq; the largest is {U64_MAX}")
    return seq


def seqs_option(help: str) -> Callable[[Any], Any]:
    """Seqs with commas between them, given to the command as a list."""

    def parsed(ctx: click.Context, param: click.Parameter, text: str | None) -> list[int] | None:
        if text is None:
            return None
        if not all(part.strip().isdecimal() for part in text.split(",")):
            raise click.BadParameter(f"{text!r} is no list of seqs; write it like 17,18,30")
        return [checked_seq(int(part)) for part in text.split(",")]

    return click.option("--seqs", metavar="SEQ,...", callback=parsed, help=help)


def time_option(*names: str, help: str, default: str | None = None) -> Callable[[Any], Any]:
    """A length of time, given to the command in milliseconds."""

    def parsed(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        amount = span_ms(text)
        if amount is None:
            raise click.BadParameter(
                f"{text!r} is no length of time; write it like 250ms, 30s, 5m, 12h or 7d"
            )
        if amount > U64_MAX:
            raise click.BadParameter(f"{text!r} is too long; the longest is {U64_MAX}ms")
        return amount

    return click.option(
        *names, metavar="TIME", callback=parsed, help=help, default=default, show_default=True
    )


def moment_option(*names: str, help: str) -> Callable[[Any], Any]:
    """A point in time, given to the command in ms since 1970: written out, or how long ago."""

    def parsed(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        if text.isdecimal():
            if int(text) > U64_MAX:
                raise click.BadParameter(f"{text} is too late; the latest is {U64_MAX}")
            return int(text)
        ago = span_ms(text)
        if ago is not None:
            return max(0, int(time.time() * 1000) - ago)
        if text in _DAYS_AGO:
            today_ms = int(time.time() * 1000) // DAY_MS * DAY_MS  # days of UTC, as times are shown
            return today_ms - _DAYS_AGO[text] * DAY_MS
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is no time; write it like 2026-01-31T12:00:00Z, 2h for 2 hours ago, "
                "today or yesterday"
            ) from None
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

    return click.option(*names, metavar="TIME", callback=parsed, help=help)


def settings_argument() -> Callable[[Any], Any]:
    """`name=value` of a topic's configuration, any number, as one dictionary."""

    def parsed(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, object]:
        return dict(map(_setting, texts))

    return click.argument(
        "settings",
        nargs=-1,
        metavar="[NAME=VALUE]...",
        callback=parsed,
        shell_complete=complete_setting,
    )


def complete_setting(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of settings, and the values of those that have few."""
    name, equals, begun = incomplete.partition("=")
    defaults = setting_defaults()
    if not equals:
        return [CompletionItem(f"{known}=") for known in defaults if known.startswith(name)]
    switch = ("true", "false") if isinstance(defaults.get(name), bool) else ()
    values = setting_choices().get(name, switch)
    return [CompletionItem(f"{name}={value}") for value in values if value.startswith(begun)]


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    defaults = setting_defaults()
    if not equals:
        raise click.BadParameter(f"{text!r} is not like name=value")
    if name not in defaults:
        raise click.BadParameter(_unknown(name, sorted(defaults)))
    if not value:
        return name, defaults[name]
    parsed = _parsed(name, value, is_switch=isinstance(defaults[name], bool))
    if parsed is None:
        raise click.BadParameter(f"{name} cannot be {value!r}; {_example(name, defaults[name])}")
    return name, parsed


def _parsed(name: str, text: str, *, is_switch: bool) -> object:
    """The value; None when it is not one of the kind that setting takes."""
    choices = setting_choices().get(name)
    if choices is not None:
        return text if text in choices else None
    if name == "dead_letter":
        return text
    if is_switch:
        return {"true": True, "false": False}.get(text)
    if name.endswith("_ms"):
        return span_ms(text)
    if name == "cap_bytes":
        return bytes_of(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def setting_defaults() -> dict[str, Any]:
    """Every setting of a topic with its default."""
    from topics.topic_settings import DEFAULTS  # noqa: PLC0415 - help does without

    return dict(DEFAULTS)


def setting_choices() -> dict[str, tuple[str, ...]]:
    """The values of those settings that take one of a few words."""
    from topics.topic_settings import types  # noqa: PLC0415 - help does without

    kinds = {name: kind.__origin__ for name, kind in types().items()}
    return {name: get_args(kind) for name, kind in kinds.items() if get_origin(kind) is Literal}


def span_ms(text: str) -> int | None:
    """Milliseconds; None for what is no length of time."""
    found = _AMOUNT.fullmatch(text)
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        return None
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def bytes_of(text: str) -> int | None:
    """A number of bytes, like 64MiB; None for what is none."""
    found = _AMOUNT.fullmatch(text)
    if found is None or (found[2] or "B") not in _UNITS_BYTES:
        return None
    return int(found[1]) * _UNITS_BYTES[found[2] or "B"]


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import

    near = get_close_matches(name, known, n=1)
    return f"there is no setting {name!r}; " + (
        f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    )


def _example(name: str, default: object) -> str:
    choices = setting_choices().get(name)
    if choices is not None:
        return f"choose one of {', '.join(choices)}"
    if isinstance(default, bool):
        return "write true or false"
    if name.endswith("_ms"):
        return "write it like 250ms, 30s, 5m, 12h or 7d"
    return "write it like 1048576 or 64MiB" if name == "cap_bytes" else "write a whole number"

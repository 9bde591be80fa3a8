"""Groups of commands, and what was meant by a command that there is not."""

from __future__ import annotations

import click

ALIASES = {"list": "ls"}
"""Other names for a command, in every group that has it."""
MEANT = {
    "append": ("produce",),
    "cat": ("read",),
    "consume": ("read",),
    "create": ("put", "add"),
    "delete": ("rm",),
    "describe": ("get",),
    "drop": ("rm",),
    "finish": ("ack",),
    "follow": ("tail",),
    "get": ("read",),
    "info": ("describe", "get"),
    "new": ("create", "put", "add"),
    "publish": ("produce",),
    "release": ("nack",),
    "remove": ("drop", "rm"),
    "rm": ("drop",),
    "send": ("produce",),
    "server": ("serve",),
    "set": ("config", "put"),
    "show": ("describe", "get"),
    "start": ("serve", "run"),
    "status": ("describe", "get"),
    "subscribe": ("watch",),
    "write": ("produce",),
}
"""Names from elsewhere, and the commands to look at: the first that the group has.

Not aliases: they promise other things."""


class CommandGroup(click.Group):
    """A group that says which command was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        name = args[0]
        if name not in known:
            name = ALIASES.get(name, name)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            path = ctx.command_path.split()[1:]
            meant = _meant(name, known)
            hint = (
                f"did you mean {' '.join([*path, meant])}?"
                if meant
                else f"`{' '.join(['topics', *path])} --help` lists them."
            )
            ctx.fail(f"There is no command {' '.join([*path, name])!r}; {hint}")
        return super().resolve_command(ctx, [name, *args[1:]])


def _meant(name: str, known: list[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import

    named = [meant for meant in MEANT.get(name, ()) if meant in known]
    return next(iter(named or get_close_matches(name, known, n=1)), None)

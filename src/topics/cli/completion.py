"""`topics completion`: make a shell complete commands, options and contexts."""

from __future__ import annotations

import click

from topics.cli import _output as out
from topics.cli._exit import OK
from topics.cli._options import as_json_option

SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@as_json_option
def completion(*, shell: str, as_json: bool) -> int:
    """Print the completion script for SHELL. To have it for good:

    \b
      bash  topics completion bash > ~/.local/share/bash-completion/completions/topics
      zsh   topics completion zsh > ~/.zfunc/_topics     (a folder of your $fpath)
      fish  topics completion fish > ~/.config/fish/completions/topics.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - help does without

    from topics.cli._app import app  # noqa: PLC0415 - it imports this module

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(app, {}, "topics", "_TOPICS_COMPLETE").source()
    out.tell({"shell": shell, "script": script}, script, as_json=as_json)
    return OK

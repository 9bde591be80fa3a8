"""What can be wrong with a flow: its file, its name, or the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from topics.errors import InvalidRequest, NotFound, TopicsError


class InvalidFlow(InvalidRequest):
    """The file does not describe a flow; nothing was started."""

    @classmethod
    def unknown_key(
        cls, key: str, known: Sequence[str], *, file: Path, where: str = ""
    ) -> InvalidFlow:
        """A key nobody knows, with the nearest one that exists."""
        spelled = {name.lower(): name for name in known}
        near = get_close_matches(key.lower(), list(spelled), n=1)
        hint = f"did you mean `{spelled[near[0]]}`?" if near else f"known: {', '.join(known)}"
        return cls(f"{file}: `{key}` is no key{where}; {hint}")


class NoSuchFlow(NotFound):
    """No flow of this name has run here."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        hint = f"there are: {', '.join(known)}" if known else "none has run here yet"
        TopicsError.__init__(self, f'flow "{name}" does not exist; {hint}')


class FlowRuns(TopicsError):
    """A flow of this name is running already; two would share one checkpoint."""

    code = "flow_runs"


class FlowFailed(TopicsError):
    """The flow ended with an error; its checkpoint is as the last finished batch left it."""

    code = "flow_failed"

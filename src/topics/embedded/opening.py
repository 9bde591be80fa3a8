"""`open_log`: what `topics.open` does for a directory or for memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from topics.embedded.log import Log
from topics.embedded.view import View
from topics.engine.clock import Clock, SystemClock
from topics.engine.engine import Engine, memory_engine
from topics.engine.settings import SETTING_NAMES, EngineKeywords, EngineSettings
from topics.errors import InvalidRequest

if TYPE_CHECKING:
    from topics.storage.fs import Fs


class LogSettings(EngineKeywords, total=False):
    """Settings of a log in this process; see `topics.open`."""

    read_only: bool
    background: bool
    fs: Fs | None
    clock: Clock | None


def _refuse_an_address(path: str) -> None:
    """Refuse `localhost:4000`: it means a server, and as a directory it would be an empty log."""
    host, _, port = path.rpartition(":")
    if host and "/" not in host and port.isdecimal() and not os.path.exists(path):
        raise InvalidRequest(
            f'{path!r} looks like the address of a server: write topics.open("http://{path}"), '
            f"or './{path}' for a directory"
        )


def open_log(
    path: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    background: bool = False,
    fs: Fs | None = None,
    clock: Clock | None = None,
    **settings: Unpack[EngineKeywords],
) -> Log:
    """Open a directory as a log, or memory when no path is given. See `topics.open`.

    `fs` and `clock` stand in for the machine's own; `topics.testing` has some to choose from.
    """
    chosen = settings_of(settings)
    clock = clock or SystemClock()
    if path is None:
        if read_only:
            raise InvalidRequest("a log in memory has nothing to read yet: leave out read_only")
        if fs is not None:
            raise InvalidRequest("a log in memory has no files: give a path on that file system")
        return Log(memory_engine(chosen, clock), background=background)
    if fs is None and isinstance(path, str):
        _refuse_an_address(path)
    # Files are the slow part of the import; a log in memory does without.
    from topics.engine.recovery.opening import Opening, open_engine  # noqa: PLC0415
    from topics.storage.fs import RealFs  # noqa: PLC0415

    fs = fs or RealFs()
    where = os.path.abspath(os.fspath(path))
    opening = Opening(chosen, clock)
    if read_only:
        return View(fs, where, opening)
    engine: Engine | None = None
    log: Log | None = None
    try:
        engine = open_engine(fs, where, opening)
        log = Log(engine, background=background, path=where)
        if chosen.wal_repair is not None:
            log.checkpoint()  # what was salvaged must not depend on the damaged file again
        return log
    except BaseException:
        if log is not None:
            log._abandon()
        elif engine is not None:
            engine.release()
        raise


def settings_of(settings: Mapping[str, Any]) -> EngineSettings:
    """Settings by keyword; an unknown one is an error that names the near miss."""
    given = dict(settings)
    for name in given:
        if name not in SETTING_NAMES:
            from difflib import get_close_matches  # noqa: PLC0415 - slow to import

            near = get_close_matches(name, SETTING_NAMES, n=1)
            hint = (
                f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(SETTING_NAMES))}"
            )
            raise InvalidRequest(f"topics.open has no setting {name!r}; {hint}")
    if given.get("cold_dir") is not None:
        given["cold_dir"] = os.path.abspath(os.fspath(given["cold_dir"]))
    return EngineSettings(**given)

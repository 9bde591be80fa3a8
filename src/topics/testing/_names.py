"""Which name an open file has now.

A file keeps its handle through a rename: a WAL file is prepared as a spare and then renamed while
open. Rules that speak of names must follow it.
"""

import posixpath
import threading


class Name:
    """The current path of one file, shared by all its handles."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class Names:
    """The names of every file opened so far. Any thread may call."""

    def __init__(self) -> None:
        self._names: dict[str, Name] = {}
        self._mutex = threading.Lock()

    def of(self, path: str) -> Name:
        """The name shared by every handle of the file at `path`."""
        with self._mutex:
            return self._names.setdefault(posixpath.normpath(path), Name(path))

    def renamed(self, source: str, target: str) -> None:
        """Follow a file, or every file below a directory, to its new place."""
        old, new = posixpath.normpath(source), posixpath.normpath(target)
        with self._mutex:
            self._names.pop(new, None)
            for path in [path for path in self._names if path == old or path.startswith(old + "/")]:
                name = self._names.pop(path)
                name.path = new + path.removeprefix(old)
                self._names[name.path] = name

    def removed(self, path: str) -> None:
        """Handles keep the last name; a later file of that name is another one."""
        with self._mutex:
            self._names.pop(posixpath.normpath(path), None)

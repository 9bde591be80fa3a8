"""The import of pyarrow and numpy, beside a loop that goes on.

The import takes most of a second from a cold disk. On the loop all requests would wait for it; on a
thread requests still wait where the import keeps the interpreter lock:

    what keeps the lock                          what is done here
    the first touch of each page of a library    libraries are read before, without the lock
    Python code, up to 5 ms at each hand-over    the interpreter switches threads after 0.2 ms

pyarrow is an extra: without it only numpy is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SWITCH_S: Final = 0.0002
_PIECE: Final = 1 << 20
_LIBRARIES: Final = {
    "numpy": ("*/*.so", "../numpy.libs/*.so*"),
    "pyarrow": (
        "lib.*.so",
        "_compute.*.so",
        "libarrow.so*",
        "libarrow_[acdp]*.so*",
        "libarrow_substrait.so*",
        "libparquet.so*",
    ),
}
"""What the two packages map into memory; pyarrow's larger part is not needed here."""
_lock = threading.Lock()


def load() -> None:
    """Import what Arrow needs. Call it on a thread."""
    with _lock:
        if "topics.http.api.arrow" in sys.modules:
            return
        for package, libraries in _LIBRARIES.items():
            _read(package, libraries)
        with _quick_switches():
            if importlib.util.find_spec("pyarrow") is not None:
                importlib.import_module("pyarrow.compute")
                importlib.import_module("topics.storage.frames.arrow")
            importlib.import_module("topics.http.api.arrow")


def _read(package: str, libraries: tuple[str, ...]) -> None:
    """Bring files into the kernel's page cache. The import tells what is wrong with them."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return
    for pattern in libraries:
        for path in Path(found.origin).parent.glob(pattern):
            with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
                while file.read(_PIECE):
                    pass


@contextmanager
def _quick_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)

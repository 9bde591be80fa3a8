"""Tools to test a durable log, this one or a program built on it.

- `SimDisk`: a disk in memory with power cuts, lying syncs and a capacity
- `FaultFs`: any file system, with calls that fail on request
- `WatchFs`: any file system, with objections to calls in a dangerous order
- `ManualClock`: time that passes when told to
- `stop_at`: end a program at a named crash point
- `LiveServer`: a real server process on a free port, to be killed and restarted

They stack: `WatchFs(FaultFs(SimDisk()))`. The rest of the package never imports them. Each is
imported when it is first asked for: the pytest plugin beside them must cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topics.testing._damage import SECTOR, CrashMode, NameMode
    from topics.testing._mount import PowerOff
    from topics.testing.clock import ManualClock, Timer
    from topics.testing.disk import SimDisk
    from topics.testing.faults import Fault, FaultFs, FsCall, Op, Rule
    from topics.testing.power import Stop, stop_at
    from topics.testing.server import LiveServer
    from topics.testing.watch import WatchFs

__all__ = [
    "SECTOR",
    "CrashMode",
    "Fault",
    "FaultFs",
    "FsCall",
    "LiveServer",
    "ManualClock",
    "NameMode",
    "Op",
    "PowerOff",
    "Rule",
    "SimDisk",
    "Stop",
    "Timer",
    "WatchFs",
    "stop_at",
]

_HOMES = {
    "SECTOR": "_damage",
    "FsCall": "faults",
    "CrashMode": "_damage",
    "Fault": "faults",
    "FaultFs": "faults",
    "LiveServer": "server",
    "ManualClock": "clock",
    "NameMode": "_damage",
    "Op": "faults",
    "PowerOff": "_mount",
    "Rule": "faults",
    "SimDisk": "disk",
    "Stop": "power",
    "Timer": "clock",
    "WatchFs": "watch",
    "stop_at": "power",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    if name not in _HOMES:
        raise AttributeError(f"module 'topics.testing' has no attribute {name!r}")
    return getattr(import_module(f"topics.testing.{_HOMES[name]}"), name)

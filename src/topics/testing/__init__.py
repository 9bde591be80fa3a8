"""Tools to test a durable log, this one or a program built on it.

- `SimDisk`: a disk in memory with power cuts, lying syncs and a capacity
- `FaultFs`: any file system, with calls that fail on request
- `WatchFs`: any file system, with objections to calls in a dangerous order
- `ManualClock`: time that passes when told to
- `stop_at`: end a program at a named crash point

They stack: `WatchFs(FaultFs(SimDisk()))`. The rest of the package never imports them.
"""

from topics.testing._damage import SECTOR, CrashMode, NameMode
from topics.testing._mount import PowerOff
from topics.testing.clock import ManualClock, Timer
from topics.testing.disk import SimDisk
from topics.testing.faults import Call, Fault, FaultFs, Op, Rule
from topics.testing.power import Stop, stop_at
from topics.testing.watch import WatchFs

__all__ = [
    "SECTOR",
    "Call",
    "CrashMode",
    "Fault",
    "FaultFs",
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

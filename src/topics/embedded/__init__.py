"""The embedded door: a log that lives in this process."""

from topics.embedded.log import Log
from topics.embedded.opening import open_log

__all__ = ["Log", "open_log"]

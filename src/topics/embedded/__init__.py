"""The embedded log: it lives in this process."""

from topics.embedded.log import Log
from topics.embedded.opening import open_log

__all__ = ["Log", "open_log"]

"""What the checkpoint of a query tells without Spark."""

from __future__ import annotations

import os


def has_read(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether a query has planned a batch there, so that the next run goes on behind it.

    A query that ended before its first batch has left a checkpoint that knows nothing yet.
    """
    began = os.path.join(checkpoint, "offsets")
    return os.path.isdir(began) and any(name.isdecimal() for name in os.listdir(began))

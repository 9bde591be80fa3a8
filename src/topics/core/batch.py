"""The batch of a write, which the wire and the core share, lives in `topics.batch`."""

from topics.batch import RecordBatch, joined

__all__ = ["RecordBatch", "joined"]

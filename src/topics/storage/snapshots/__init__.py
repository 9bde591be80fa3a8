"""Snapshot files: the state at a position of the log."""

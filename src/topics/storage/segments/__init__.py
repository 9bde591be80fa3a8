"""Segments: runs of one topic's records in files of their own, off the log."""

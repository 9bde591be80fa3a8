"""Frames: the checksummed units of the log and of segments."""

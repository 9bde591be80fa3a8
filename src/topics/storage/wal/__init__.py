"""The write-ahead log: where a change becomes durable.

`shard` writes one group of files; `inline` and `grouped` decide when; `scan` reads groups back
after a crash and `repair` makes them fit to be followed by a new generation.
"""

"""A Spark session on this machine: `session` starts it, `doctor` looks; `cache` is on disk."""

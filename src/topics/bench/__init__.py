"""Programs that measure. `topics bench engine` runs `topics.bench.engine`."""

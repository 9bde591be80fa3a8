"""Objects under names: what a backup is written to and read from (see `interface`)."""

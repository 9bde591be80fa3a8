"""Taking a backup of a data directory, and restoring one."""

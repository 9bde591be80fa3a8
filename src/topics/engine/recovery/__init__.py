"""Opening a directory: judging what a crash left, and replaying the log."""

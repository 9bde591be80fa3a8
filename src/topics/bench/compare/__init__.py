"""`topics bench compare`: the same work on the servers that people use today, in one run."""

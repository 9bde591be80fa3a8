"""Reading: after a cursor, from the tail, from history, by page, and what a topic looks like."""

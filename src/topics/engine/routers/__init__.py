"""Routers: records of one topic copied to another, in order."""

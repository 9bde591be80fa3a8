"""Staged writes: records kept aside part by part, then committed together, once."""

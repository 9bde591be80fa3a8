"""Joins the decisions of `core` to the bytes of `storage`."""

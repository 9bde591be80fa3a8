"""Appending, deleting, and topics that come and go: how a change is decided and committed."""

"""The bytes of a backup (see `manifest`)."""

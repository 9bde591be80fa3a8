"""The only code that knows bytes on disk."""

"""Builds the whole server: settings, wiring, signals."""

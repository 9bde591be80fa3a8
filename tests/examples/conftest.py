"""A real server for the examples to talk to."""

from __future__ import annotations

from tests.blackbox.conftest import ServerProcess, server, server_factory

__all__ = ["ServerProcess", "server", "server_factory"]

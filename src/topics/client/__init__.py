"""Programs that use a log through a server, and how they find it. Knows nothing of the server."""

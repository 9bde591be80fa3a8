"""WebSocket connections and their commands."""

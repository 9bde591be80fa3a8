"""The server's edge: HTTP/1.1, HTTP/2 and WebSocket on one port, and the `/v0` API on top.

The transport (`listener` and what it uses) knows nothing of topics; it serves one
`Application` (`messages`). The application knows nothing of sockets.
"""

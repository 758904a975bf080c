"""Listeners and connections: bytes between sockets and frames. Knows no API key and no request."""

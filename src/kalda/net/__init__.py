"""Accepts and opens connections, and moves bytes between sockets and frames.

It knows no API key of its own and handles no request: the server passes each frame to a handler. It uses
`protocol` for framing and, in `net.client` and `net.peer`, for requests and responses.
"""

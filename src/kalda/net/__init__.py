"""Accepts and opens connections, moves bytes between sockets and frames, and serves the metrics over HTTP.

It handles no Kafka request: the server passes each frame to a handler. It imports `kalda.common`, and
`kalda.protocol` for framing and, in `net.client` and `net.peer`, for requests and responses.
"""

"""Accepts and opens connections, moves bytes between sockets and frames, and serves the metrics over HTTP.

`socket_server` accepts for every protocol (Kafka's, ZooKeeper's, HTTP), `server` for Kafka's. It handles no
request: the server passes each frame to a handler. It imports `kalda.runtime`, `kalda.common`,
`kalda.security` for TLS and logins, and `kalda.protocol` for framing and, in `net.client` and `net.peer`, for
requests and responses.
"""

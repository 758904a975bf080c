"""ZooKeeper's wire protocol as bytes: jute serialisation, framing, requests, responses, numbers. Sans-IO.

The package opens no connection and serves no request; it imports no other package of Kalda.
`kalda.zookeeper.server` uses it for its wire and its files, and `kalda.zookeeper.client` for the other side
of the wire.
"""

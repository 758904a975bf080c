"""ZooKeeper: the port that Kalda uses, a client, a standalone server, and the wire protocol of both.

`port.ZooKeeperClient` is the port, `errors` has its exceptions. Two engines implement it: `client`, for
ZooKeeper servers over the wire, and `server.embedded`, for a server in the same process. It is not a complete
ZooKeeper: the server is never a member of an ensemble, and the client has only what brokers and tools use.
What Kafka keeps in znodes is `kalda.cluster`.
"""

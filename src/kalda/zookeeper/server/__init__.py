"""A standalone ZooKeeper server: data tree, watches, sessions, write-ahead log, snapshots, and its wire.

It is not a member of an ensemble and replicates nothing. Clients of the same process connect through
`embedded`, others through `listener`. The package uses `kalda.zookeeper.protocol` for bytes, the types of
`kalda.zookeeper.port`, the ports of `kalda.runtime`, and the server and connections of `kalda.net`;
`kalda.broker.process` and `kalda.testing` run it.
"""

"""A standalone ZooKeeper server: data tree, watches, sessions, write-ahead log, snapshots, and its wire.

It is not a member of an ensemble and replicates nothing. Clients of the same process connect through
`embedded`, others through `listener`. The package uses `kalda.zookeeper.protocol` for bytes, the errors and
types of `kalda.zookeeper.client`, the file system port of `kalda.storage` and `kalda.net`'s detection of
foreign protocols; `kalda.broker.process` and `kalda.testing` run it.
"""

"""The ensemble engine: implements `ZooKeeperClient` for ZooKeeper servers over the wire.

`session_stream` is the protocol of one connection without I/O, `link` keeps a session connected to one server
after the other, and `ensemble_client` adds calls, watches and the sessions that follow each other.
The package does not know what the cluster keeps in ZooKeeper.
"""

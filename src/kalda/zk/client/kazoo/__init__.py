"""The ensemble engine: implements `ZooKeeperClient` for ZooKeeper servers over the wire, through kazoo.

kazoo is a ZooKeeper client with threads and callbacks; only `link` imports it. The package turns these into
calls and events on the event loop, in the order of their arrival. It does not know what the cluster keeps in
ZooKeeper. It uses the port and the errors of `kalda.zk.client`; `kalda.broker.process` and `kalda.testing`
open its sessions.
"""

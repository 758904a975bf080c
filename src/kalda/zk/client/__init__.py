"""What the cluster keeps in ZooKeeper: the client port, Kafka's paths and JSON, and typed operations on them.

`port.ZooKeeperClient` is the port. Two engines implement it: `ensemble` here, for ZooKeeper servers over the
wire, and `kalda.zk.server.embedded`, for a server in the same process. `ClusterStore`, `ControllerStore` and
`IsrStore` are the typed operations of brokers, the active controller and partition leaders. The package
caches nothing and decides nothing; `kalda.broker` and `kalda.controller` do. Below it, it uses
`kalda.net` for connections, `kalda.security` and `kalda.zk.proto`.
"""

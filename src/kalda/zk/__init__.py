"""ZooKeeper: its wire protocol (`proto`), a standalone server (`server`), and the cluster's client
(`client`).

It is not a complete ZooKeeper: the server is never a member of an ensemble, and the client has only what
brokers use. The controller and the broker use `client`; the processes and test clusters run `server`.
"""

"""ZooKeeper: its wire protocol (`proto`), a standalone server (`server`), and the cluster's client
(`client`).

It is not a complete ZooKeeper: the server is never a member of an ensemble, and the client has only what
brokers use. `kalda.controller` and `kalda.broker` use `client`; `kalda.broker.process` and `kalda.testing`
run `server`, which uses `kalda.storage` and `kalda.net`.
"""

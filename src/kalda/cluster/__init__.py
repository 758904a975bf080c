"""Reads and writes a Kafka cluster's znodes in ZooKeeper: paths, JSON, and typed operations on them.

`ClusterStore`, `ControllerStore` and `IsrStore` are the operations of brokers, the active controller and
partition leaders. They use `kalda.zookeeper.port`, cache nothing and decide nothing; `kalda.broker` and
`kalda.controller` do.
"""

"""Creates and deletes topics, adds partitions, and assigns replicas to brokers.

The changes are written to ZooKeeper, where the controller reads them. The package uses `config` and
`metadata`.
"""

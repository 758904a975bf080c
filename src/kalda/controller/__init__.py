"""Kafka's ZooKeeper-era controller: a pure core (`core.step`) and the driver that performs its effects."""

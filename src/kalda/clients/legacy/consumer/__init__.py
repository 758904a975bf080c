"""The high-level consumer of Kafka 0.7 and 0.8: groups that balance themselves through ZooKeeper.

`consumer_connector` is the public class. `topic_count` and `partition_assignment` are pure, `group_registry`
and `offset_storage` know the znodes, `rebalancer` decides when to do what, `stream_feeder` fetches, and
`kafka_stream` is the side of the program's threads.
"""

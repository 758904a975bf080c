"""What a broker publishes about itself beside requests and connections, under the names that dashboards know.

`replicas` has Kafka's own figures of the broker, `partitions` those of single partitions and topics,
`consumer_groups` the progress of groups, `process` those of the process and its event loop. All are read
when the metrics are rendered; the data path only adds to plain integers.

Series of a partition are published by its leader, and those of a group by its coordinator, so that a sum
over all brokers counts each once.
"""

from kalda.broker.metrics.replicas import register_broker_metrics

__all__ = ["register_broker_metrics"]

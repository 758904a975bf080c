"""Publishes the metrics of a broker, apart from those of requests and connections, under established names.

`broker` has Kafka's own figures of the broker, `partitions` those of partitions, topics and log directories,
`consumer_groups` the progress of groups, `process` those of the process and its event loop. The values are
read when the metrics are rendered; the data path only adds to plain integers. The package reads from the
other packages of the broker, and only `kalda.broker.assembly` and `kalda.broker.server` import it.

The leader of a partition publishes its series, and the coordinator of a group those of the group, so that a
sum over all brokers counts each once.
"""

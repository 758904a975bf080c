"""Publishes the metrics of a broker, apart from those of requests and connections.

The names are those of Kafka's MBeans, of Kafka Exporter and of the Prometheus client libraries, so that
existing dashboards work. `broker` has Kafka's own figures of the broker, `partitions` those of partitions,
topics and log directories, `consumer_groups` the progress of groups, `process` those of the process and its
event loop. The values are read when the metrics are rendered; the data path only adds to plain integers. The
package reads from `metadata`, `replicas`, `fetching`, `kalda.storage`, `kalda.controller` and
`kalda.coordinator`, and asks other brokers through `kalda.net.peer`. Only `kalda.broker.assembly` and
`kalda.broker.server` import it.

The leader of a partition publishes its series, and the coordinator of a group those of the group, so that a
sum over all brokers counts each once.
"""

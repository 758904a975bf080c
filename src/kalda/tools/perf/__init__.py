"""`kalda perf produce|consume|end-to-end`: measures a cluster, with the output columns of Kafka's tools."""

"""The partition log on disk, in Kafka's format: segments, indexes, recovery, retention, producer state."""

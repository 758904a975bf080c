"""The assignors that a leader of a classic group runs, equal to those of Apache Kafka's Java client."""

"""Access control lists: what they are, how Kafka keeps them, and what they allow."""

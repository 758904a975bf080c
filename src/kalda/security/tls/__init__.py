"""TLS: key and trust stores, contexts made from Kafka's settings, and the channel that encrypts."""

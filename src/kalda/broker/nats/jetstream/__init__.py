"""Serves JetStream on a broker: streams over the topics that it leads, and the API on NATS listeners."""

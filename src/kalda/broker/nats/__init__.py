"""The listeners of a broker that speak NATS's protocol, over the sans-IO core in `kalda.nats`."""

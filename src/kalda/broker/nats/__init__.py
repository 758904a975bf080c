"""Serves NATS's protocol on listeners of a broker, over the sans-IO core in `kalda.nats`."""

"""Pushes a client's metrics to the cluster when the cluster subscribes to them (KIP-714)."""

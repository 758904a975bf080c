"""Connections from a client to brokers: one blocking connection, and a client of a whole cluster."""

"""Connections from a broker to another: replication, the controller, controlled shutdown."""

"""Secures a broker: listeners, connections to other brokers, authorization, quotas and the audit log."""

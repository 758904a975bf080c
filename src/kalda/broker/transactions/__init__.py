"""Transactions as brokers carry them out: markers in logs, and what brokers tell each other about both."""

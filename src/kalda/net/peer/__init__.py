"""Connects a broker to others: for replication, the controller's requests, transactions, lag metrics.

The callers decide what to send and when to retry. `protocol` builds the requests and reads the responses.
"""

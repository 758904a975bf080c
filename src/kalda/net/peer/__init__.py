"""Connects a broker to others for replication, the requests of the controller, transactions and lag metrics.

It does not decide what to send or when to retry; the callers do. `kalda.protocol` builds the requests and
reads the responses, and `net.client` chooses their versions.
"""

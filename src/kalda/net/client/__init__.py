"""Holds what clients and connections between brokers share: one pipelined connection, versions, errors.

It knows no cluster: `kalda.clients` chooses brokers, keeps metadata and retries. It imports `kalda.protocol`
and `kalda.common`.
"""

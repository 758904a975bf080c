"""Connects the transaction coordinator of `kalda.coordinator` to the broker.

It allocates producer ids, writes and sends transaction markers, and verifies with the coordinator that the
partitions of a batch belong to an open transaction (KIP-890). It uses `context`, `metadata`, `topics`,
`replicas` and `internal_topics`, and reaches other brokers through `kalda.net.peer`. What the
coordinator decides is not here.
"""

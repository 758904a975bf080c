"""Reads, checks, patches and builds records: the bytes that producers send and the log stores.

They are record batches (magic 2), and the message sets of Kafka before 0.11 (magic 0 and 1). The package
performs no I/O. It knows nothing of requests (`kalda.protocol`) or files (`kalda.storage`), and imports only
`kalda.common`.
"""

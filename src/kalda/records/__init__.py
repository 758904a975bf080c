"""Reads, checks, patches and builds record batches: the bytes that producers send and the log stores.

The package performs no I/O. It refuses legacy message sets (magic 0 and 1) and knows nothing of requests
(`kalda.protocol`) or files (`kalda.storage`). It imports only `kalda.common`.
"""

"""Stores partitions on disk in Kafka's format: segments, indexes, recovery, retention, producer state.

`LogManager` holds the logs of a broker and `UnifiedLog` is the log of one partition. The package does not
know who leads a partition (`kalda.broker`), and it reads records only through `kalda.records`. It imports
`kalda.common` and `kalda.records`; all file access goes through `kalda.runtime.filesystem`.
"""

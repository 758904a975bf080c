"""Log compaction: keeping the last record of each key, as Kafka's log cleaner does.

Two halves that share files only: what decides and swaps runs on the event loop (`log_cleaner`), what reads
and writes whole segments runs in a process of its own (`worker`), see docs/internals/compaction.md.
"""

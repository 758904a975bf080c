"""Compacts logs: keeps the last record of each key, as Kafka's log cleaner does.

The package has two halves that share only files. `log_cleaner` chooses logs and swaps segments on the event
loop; `worker` reads and writes whole segments in a child process. See docs/internals/compaction.md. It uses
the logs and segments of `kalda.storage`, which call it back only through `log_resources.CleanerPort`.
"""

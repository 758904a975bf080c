"""The group and transaction coordinators: state machines kept in partitions of internal topics.

`runtime` loads that state from a partition's log and writes every change to it; `group` and `transaction`
decide what to write. The package has no sockets, files, clocks or tasks of its own: `kalda.broker` gives it a
log, a clock and an event loop, calls the coordinators from request handlers, and creates the topics. It
imports `kalda.protocol` for messages and records, `kalda.records` for batches, `kalda.common`, and ports of
`kalda.runtime`.
"""

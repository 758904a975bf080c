"""The coordinator runtime: keeps the state of each partition of an internal topic that this broker leads.

It loads shards, appends and replays their records, holds responses back until the records are committed, and
runs timers. It does not interpret records: the group and transaction coordinators do, behind the ports in
`coordinator_shard`. It imports `kalda.records` for batches and `kalda.common`; `kalda.broker.internal_topics`
calls it to load and unload shards. Kafka's counterpart is ``CoordinatorRuntime``.
"""

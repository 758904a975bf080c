"""Connects share groups (KIP-932) to the broker: share sessions, share partitions that it leads, their state.

It decides nothing: `kalda.coordinator.share` and `kalda.coordinator.group.share` do. It uses `metadata`,
`replicas`, `internal_topics` and `context`.
"""

"""Hosts the replicas of one broker: leads or follows partitions, appends, reads and keeps replicas in sync.

`replica_manager` finds partitions and appends to them, `partition` is one replica and its role,
`role_changes` applies what the controller decided, `isr_changes` shrinks and expands in-sync replicas,
`follower` fetches from leaders. The log itself is `kalda.storage`; waiting fetches are in `fetching`.
The package uses `topics`, and in its `assembly` also `context` and `metadata`.
"""

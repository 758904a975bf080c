"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A member that the coordinator names leader assigns partitions; the coordinator only distributes the
assignment. The package reads and changes the state of one shard and imports nothing of the consumer protocol.
"""

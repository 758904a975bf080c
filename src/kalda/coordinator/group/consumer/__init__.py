"""The consumer group protocol (KIP-848): the coordinator assigns partitions, members reconcile one by one.

A heartbeat joins, changes or leaves a group and moves the member towards its target assignment. Members of
the classic protocol can be in the same group, and groups can change their protocol. The package reads
and changes the state of one shard; it sees the cluster's topics through the port in `topics`.
"""

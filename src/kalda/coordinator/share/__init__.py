"""Share groups (KIP-932): the deliveries of share partitions, and the coordinator that stores their state.

`SharePartition` decides which records a member gets and what its acknowledgements do; the leader of the
partition runs it. `ShareCoordinator` stores its state in ``__share_group_state``. The groups themselves,
their members and assignments, are in `kalda.coordinator.group.share`.
"""

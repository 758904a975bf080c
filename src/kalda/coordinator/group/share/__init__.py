"""Share groups (KIP-932): their members, subscriptions and assignments.

A member of a share group shares its partitions with other members, so nobody waits for a revocation: a member
has its target assignment with its next heartbeat. What the members get of a partition is in
`kalda.coordinator.share`.
"""

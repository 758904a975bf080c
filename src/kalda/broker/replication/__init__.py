"""Replication: roles of partitions on this broker, the leader's side, the follower's side, throttles."""

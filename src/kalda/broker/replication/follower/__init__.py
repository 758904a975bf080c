"""The follower's side of replication: fetching from leaders and truncating by epoch."""

"""The follower's side of replication: fetching from leaders, truncating by epoch, and the throttles."""

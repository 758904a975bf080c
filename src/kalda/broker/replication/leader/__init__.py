"""The leader's side of replication: in-sync replicas, how followers are served, and who serves a consumer."""

"""Fetches from leaders the records of the partitions that this broker follows.

`fetcher_core` decides without I/O what to fetch and when to truncate, `replica_fetcher` sends the requests to
one leader, `replica_fetcher_manager` assigns partitions to fetchers. The package does not decide which
partitions to follow; `role_changes` does. It uses `partition` and `replication_quota` of the package above,
`kalda.settings` and the connections of `kalda.net.peer`.
"""

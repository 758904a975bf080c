"""Connects clients to brokers: one blocking connection, and a client of a whole cluster.

It is not a producer or a consumer: it joins no group and keeps no position. It imports `kalda.protocol` and
`kalda.common`. Spark's data source uses it, and `net.peer` uses its choice of versions.
"""

"""Moves what a cluster keeps in one engine (ZooKeeper, etcd, the embedded server) to another one.

`marker` is the znode that says which engine a cluster uses and keeps brokers from starting on the other.
`decision` says, from the markers of both engines, which engine is right and what the next step is; it does no
I/O. `tree` reads, compares and copies trees. `migration` performs the steps, and may be ended after any of
them: the next run goes on from the markers.
"""

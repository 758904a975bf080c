"""Models etcd for simulations: the real `kalda.etcd` talks to it over the simulated network.

`wire` has the messages in the server's direction, `store` keys with their history and leases, without I/O;
`server` serves a store in virtual time and misbehaves as etcd does; `link` is the client's side in the place
of gRPC.
"""

"""The etcd engine: implements `ZooKeeperClient` for etcd servers (3.4 and later), on etcd's own terms.

`protobuf` and `messages` are etcd's messages as bytes, `keys` says where a znode is, `transaction` translates
operations to one etcd transaction, `batch` puts several into one request, `watches` matches events with
callbacks. All of these do no I/O. `connection` makes the calls, `client` keeps a session over connections.

What etcd gives: data, versions, revisions of creation and of the last change, owners (a lease), order of
changes. What it does not have: times (`ctime` and `mtime` are 0), counters of children's changes (`cversion`
is 0, `pzxid` is the revision of the znode's creation), access lists of single znodes.
"""

"""The ensemble engine: a ZooKeeper session over the wire through kazoo, which only `link` imports."""

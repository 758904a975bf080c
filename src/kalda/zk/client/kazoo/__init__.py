"""A session with a ZooKeeper ensemble over the kazoo library; `link` is the one module that imports it."""

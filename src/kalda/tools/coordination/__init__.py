"""`kalda coordination`: moves a cluster between engines: ZooKeeper, etcd, the server of `kalda start`."""

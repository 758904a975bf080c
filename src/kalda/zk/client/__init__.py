"""What the cluster keeps in ZooKeeper: paths, JSON, typed operations, and the port an engine fills."""

"""`kalda zk`: a shell over the tree of a coordination server, ours or a real ZooKeeper."""

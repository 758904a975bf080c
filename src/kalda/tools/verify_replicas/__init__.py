"""`kalda verify-replicas`: compares the batches of all replicas of each partition."""

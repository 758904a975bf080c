"""The coordination server: data tree, watches, write-ahead log, snapshots and the chain of processors."""

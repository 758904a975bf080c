"""ZooKeeper's serialisation: what its wire protocol and its files share. Sans-IO."""

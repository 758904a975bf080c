"""Creates and deletes topics, adds partitions, and assigns replicas to brokers.

It writes the changes to ZooKeeper, where the controller reads them; it does not elect leaders or create logs.
The package uses `config` and `metadata`. The request handlers and `internal_topics` call it, and other
packages read the names in `topic_names`.
"""

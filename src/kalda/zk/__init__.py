"""ZooKeeper in Python: its serialisation (`kalda.zk.proto`) and its server (`kalda.zk.server`)."""

"""The group `kalda zk`, which its modules add their commands to."""

from kalda.command.command import noun

zk = noun("Read and change the tree of a coordination server.\n\nIt may be a ZooKeeper ensemble.")

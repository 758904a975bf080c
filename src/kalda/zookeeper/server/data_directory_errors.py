"""Errors of the ZooKeeper server's directory; clients get those of `kalda.zookeeper.errors`."""


class CorruptionError(Exception):
    """A file does not hold changes that were durable; starting the server would lose acknowledged changes.

    The message names the file and the position.
    """


class DirectoryInUseError(Exception):
    """Another process has locked the directory."""

"""What the coordination server raises about its own files; what clients see is in `zk.client.errors`."""


class CorruptionError(Exception):
    """A file does not hold what was once made durable there; starting would lose acknowledged changes.

    The message names the file and the position.
    """


class DirectoryInUseError(Exception):
    """Another process serves from this directory."""

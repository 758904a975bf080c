"""Defines errors of the server's directory; clients get those of `kalda.zookeeper.errors`."""

from typing import Final

_VERSION_MAX: Final = 9
"""Above this a version is damaged, not newer."""


class CorruptionError(Exception):
    """A file does not hold changes that were durable; starting the server would lose acknowledged changes.

    The message names the file and the position.
    """


class DirectoryInUseError(Exception):
    """Another process has locked the directory."""


def check_not_newer(path: str, data: bytes, header: bytes) -> None:
    """Check that a file has no later version than `header`: its kind in 4 bytes, its version in 4.

    Raises:
        CorruptionError: a newer release wrote it; what it says must not be taken for damage and cut off.
    """
    found, known = int.from_bytes(data[4:8]), int.from_bytes(header[4:8])
    if data[:4] == header[:4] and known < found <= _VERSION_MAX:
        raise CorruptionError(
            f"{path} has format version {found}, and this release of Kalda reads version {known}: a newer "
            "release wrote it"
        )

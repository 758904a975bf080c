"""Which log directories failed: what tells a broken device from a full one, and whom that concerns.

Whoever meets an `OSError` under a log directory notes it here. A full disk, or a process without descriptors,
passes; a device that returns errors or turned read-only, and a directory that is gone, do not: the directory
goes out of service as a whole, while the broker serves the others (JBOD, KIP-112).
"""

import errno
from collections.abc import Callable
from typing import Final

from kalda.storage.filesystem import FileSystem

LASTING: Final = frozenset(
    (
        errno.EIO,
        errno.EROFS,
        errno.ENXIO,
        errno.ENODEV,
        errno.ESTALE,
        errno.ENOTCONN,
        # A file system that found itself damaged, and files that were made immutable.
        errno.EUCLEAN,
        errno.EPERM,
    )
)
"""What a device answers that will not recover by itself."""
_GONE: Final = frozenset((errno.ENOENT, errno.ENOTDIR))
"""Of a single file they may mean that it was deleted meanwhile; of the directory itself they last."""


class DirectoryFailures:
    """The failed log directories of one process, and who is told of the next."""

    __slots__ = ("_file_system", "failed", "on_failure")

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system: Final = file_system
        self.failed: Final[dict[str, str]] = {}
        """Directory -> what it failed with. None ever leaves: a restart looks anew."""
        self.on_failure: Callable[[str], None] | None = None
        """Called once for each directory, from deep inside a log: it must put the work off."""

    def note(self, directory: str, error: BaseException) -> bool:
        """Take note of what went wrong under a log directory; tells whether that ends its service."""
        if directory in self.failed:
            return True
        if not self.is_lasting(directory, error):
            return False
        assert isinstance(error, OSError), f"only the system's errors last, not {error!r}"
        self.give_up(directory, error)
        return True

    def give_up(self, directory: str, error: OSError) -> None:
        """End a directory's service."""
        self.failed[directory] = error.strerror or str(error)
        if self.on_failure is not None:
            self.on_failure(directory)

    def is_lasting(self, directory: str, error: BaseException) -> bool:
        """Tell whether the directory as a whole can no longer be used."""
        if not isinstance(error, OSError):
            return False
        if error.errno in LASTING:
            return True
        return error.errno in _GONE and not self._file_system.exists(directory)

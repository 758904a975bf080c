"""Records which log directories have failed and which are full, as `OSError` shows it.

Code that catches an `OSError` below a log directory calls `DirectoryFailures.note`. A device that returns I/O
errors or turned read-only, and a directory that no longer exists, do not recover: the whole directory goes
out of service while the broker serves the others (JBOD, KIP-112). A directory without space is full until a
probe finds room (`kalda.storage.space_probe`): reads go on, and other brokers should lead its partitions. Any
other error, such as too few descriptors, is temporary and changes nothing here.
"""

import errno
from collections.abc import Callable
from typing import Final

from kalda.common.error_text import error_text
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
OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""What a device answers that has no space, or no inodes, or none of them for this user."""
_GONE: Final = frozenset((errno.ENOENT, errno.ENOTDIR))
"""Of a single file they may mean that it was deleted meanwhile; of the directory itself they last."""


class DirectoryFailures:
    """The failed and the full log directories of one process, and who is told of the next."""

    __slots__ = ("_file_system", "failed", "full", "on_failure", "on_full")

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system: Final = file_system
        self.failed: Final[dict[str, str]] = {}
        """Directory -> what it failed with. None ever leaves: a restart looks anew."""
        self.on_failure: Callable[[str], None] | None = None
        """Called once for each directory, from deep inside a log: it must put the work off."""
        self.full: Final[dict[str, str]] = {}
        """Directory -> what a write failed with for want of space; taken out by whoever finds room."""
        self.on_full: Callable[[str], None] | None = None
        """Called whenever a directory becomes full; as with `on_failure`, the work must be put off.

        Who listens also finds out when there is room; without a listener no directory counts as full.
        """

    def listen(
        self,
        *,
        on_failure: Callable[[str], None] | None = None,
        on_full: Callable[[str], None] | None = None,
    ) -> None:
        """Call these functions from now on when a directory fails or becomes full."""
        self.on_failure, self.on_full = on_failure or self.on_failure, on_full or self.on_full

    def note(self, directory: str, error: BaseException) -> bool:
        """Take note of what went wrong under a log directory; tells whether that ends its service."""
        if directory in self.failed:
            return True
        if not self.is_lasting(directory, error):
            # Without a listener nobody would find out that there is room again.
            if is_out_of_space(error) and self.on_full is not None and directory not in self.full:
                self.full[directory] = error_text(error)
                self.on_full(directory)
            return False
        assert isinstance(error, OSError), f"only the system's errors last, not {error!r}"
        self.give_up(directory, error)
        return True

    def give_up(self, directory: str, error: OSError) -> None:
        """End a directory's service."""
        self.failed[directory] = error.strerror or str(error)
        self.full.pop(directory, None)
        if self.on_failure is not None:
            self.on_failure(directory)

    def is_lasting(self, directory: str, error: BaseException) -> bool:
        """Return whether the directory as a whole can no longer be used."""
        if not isinstance(error, OSError):
            return False
        if error.errno in LASTING:
            return True
        return error.errno in _GONE and not self._file_system.exists(directory)


def is_out_of_space(error: BaseException) -> bool:
    """Return whether a write failed only because the disk is full."""
    return isinstance(error, OSError) and error.errno in OUT_OF_SPACE

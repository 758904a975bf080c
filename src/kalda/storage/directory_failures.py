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

from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import NewerFormatError

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
"""Errors of a device that will not recover by itself."""
OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of a device without space or inodes, or without any left for this user."""
_GONE: Final = frozenset((errno.ENOENT, errno.ENOTDIR))
"""Errors that last only if the directory itself is gone; a single file may have been deleted."""


class DirectoryFailures:
    """The failed and the full log directories of one process, and the callbacks for the next."""

    __slots__ = ("_file_system", "failed", "full", "on_failure", "on_full")

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system: Final = file_system
        self.failed: Final[dict[str, str]] = {}
        """Directory -> its error. An entry stays until a restart checks the directory again."""
        self.on_failure: Callable[[str], None] | None = None
        """Called once for each failed directory, from inside a log: the callback must defer its work."""
        self.full: Final[dict[str, str]] = {}
        """Directory -> the error of a write without space; the space probe removes the entry."""
        self.on_full: Callable[[str], None] | None = None
        """Called when a directory becomes full; as with `on_failure`, the callback must defer its work.

        The listener also detects free space later; without a listener no directory counts as full.
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
        """Record an error below a log directory; return whether the directory is out of service."""
        if directory in self.failed:
            return True
        if not self.is_lasting(directory, error):
            # Without a listener nothing would detect that there is room again.
            if is_out_of_space(error) and self.on_full is not None and directory not in self.full:
                self.full[directory] = error_text(error)
                self.on_full(directory)
            return False
        assert isinstance(error, OSError), f"only the system's errors last, not {error!r}"
        self.give_up(directory, error)
        return True

    def give_up(self, directory: str, error: OSError) -> None:
        """Take a directory out of service."""
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


def remedy(error: Exception) -> str:
    """Return the instruction for an operator whose partition cannot be opened."""
    if is_out_of_space(error):
        return "free space on its volume"
    if isinstance(error, NewerFormatError):
        return "the partition was not changed"
    return _REMEDIES.get(getattr(error, "errno", None), "repair or remove the directory")


_REMEDIES: Final[dict[int | None, str]] = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "raise the system's limit of open files (`fs.file-max`)",
    errno.EACCES: "give the broker's user read and write permission",
    errno.EPERM: "give the broker's user read and write permission",
    errno.EROFS: "mount its volume for writing",
    errno.EIO: "replace the disk, or remove its log directory from `log.dirs`",
}

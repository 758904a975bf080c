"""Opens files of a log for reading only, so that a dump beside a running broker cannot change anything."""

import os

from kalda.runtime.filesystem import File
from kalda.runtime.system.filesystem import OsFile, OsFileSystem
from kalda.runtime.system.regular_file import open_regular


class ReadOnlyFileSystem(OsFileSystem):
    """The operating system's files, without a way to write them: `open` takes existing files only."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open `path` for reading; raises `OSError`."""
        assert not create, f"a dump must not create {path}"
        # The operator may name a file by a link.
        return OsFile(open_regular(os.path.realpath(path), os.O_RDONLY))

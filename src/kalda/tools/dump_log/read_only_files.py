"""Opens files of a log for reading only, so that a dump beside a running broker cannot change anything."""

import os

from kalda.common.regular_file import open_regular
from kalda.storage.filesystem import File, OsFile, OsFileSystem


class ReadOnlyFileSystem(OsFileSystem):
    """The operating system's files, without a way to write them: `open` takes existing files only."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open `path` for reading; raises `OSError`."""
        assert not create, f"a dump must not create {path}"
        # The operator may name a file by a link.
        return OsFile(open_regular(os.path.realpath(path), os.O_RDONLY))

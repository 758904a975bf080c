"""A temporary directory that is removed even when its process is killed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

_REMOVE: Final = 'trap "" INT TERM HUP; cat >/dev/null; rm -rf -- "$1"'
"""Waits until the other end of its stdin is closed, as the end of a process does, however it comes."""

_SHELL: Final = "/bin/sh"
_REMOVE_SECONDS_MAX: Final = 30.0


class GuardedDirectory:
    """A directory, and a small shell that removes it when this process has ended.

    A killed process (SIGKILL, a time-out's `os._exit`, a segmentation fault) runs no Python code at its end.
    Where there is no ``/bin/sh`` only `close` removes the directory.
    """

    def __init__(self, prefix: str) -> None:
        self.path: Final = Path(tempfile.mkdtemp(prefix=prefix))
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner: Final = os.getpid()
        if os.access(_SHELL, os.X_OK):
            # A session of its own: Ctrl-C sends SIGINT to the whole group of the terminal.
            self._guard = subprocess.Popen(
                [_SHELL, "-c", _REMOVE, "sh", str(self.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )

    def close(self) -> None:
        """Remove the directory and end the shell; in a fork, where both belong to the parent, do nothing."""
        if os.getpid() != self._owner:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None, "the shell was started with a pipe"
        guard.stdin.close()
        try:
            guard.wait(_REMOVE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # A fork of this process that still runs has the pipe, too.
            guard.kill()
            guard.wait()

"""Formats exceptions for log lines and messages, without Python's ``[Errno 28]`` and quotes."""

import os
import re
import socket
from typing import Final

from kalda.runtime.filesystem import FileKindError

_ERRNO: Final = re.compile(r"\[Errno \d+\] ")
"""The prefix that Python puts before the text of an `OSError`, also where another error quotes that text."""


def error_text(error: BaseException) -> str:
    """Return the text of an exception, or its class where the text is empty.

    Example: ``No space left on device: /data/kalda`` for an `OSError` with that file name.
    """
    if isinstance(error, OSError) and error.errno is not None:
        if isinstance(error, socket.gaierror):
            return str(error.strerror)
        text = str(error.strerror) if isinstance(error, FileKindError) else os.strerror(error.errno)
        return text if error.filename is None else f"{text}: {os.fsdecode(error.filename)}"
    return _ERRNO.sub("", str(error)) or type(error).__name__


def without_frames(error: BaseException) -> BaseException:
    """Return an error that outlives its handling, and those behind it, without the frames that they hold.

    The frames of work on records keep up to 64 MB of them.
    """
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error

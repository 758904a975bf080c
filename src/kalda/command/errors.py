"""The errors of tools and their exit codes.

Every error is one line on stderr: what happened, to what, and what to do. A traceback is a fault of ours.
"""

from typing import Final

FAILURE: Final = 1
"""The cluster refused something, or could not be reached."""

USAGE: Final = 2
"""The command line, or a file that it names, is wrong; nothing was sent."""


class ToolError(Exception):
    """A command cannot do what it was asked for; the message is the line for the user."""

    exit_code = FAILURE


class PartialFailureError(ToolError):
    """Some of the things that a command was given failed, and each has got its line."""


class ToolUsageError(ToolError):
    """The command line, or a file that it names, is wrong."""

    exit_code = USAGE

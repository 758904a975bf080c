"""Chooses the implementation of the fast codecs: compiled, or plain Python.

The extension `kalda.protocol.fast._requests` is built with the package where a C compiler exists. Both
implementations return the same and raise the same.
"""

from typing import Final

from kalda.common.pure_python import is_pure_wanted

try:
    from kalda.protocol.fast import _requests
except ImportError:
    _extension_interface = None
else:
    _extension_interface = _requests.INTERFACE

INTERFACE: Final = 5
"""The version of the extension's functions; an editable install may have an older extension."""

is_compiled: Final = _extension_interface == INTERFACE and not is_pure_wanted
"""Whether compiled code handles the usual requests."""

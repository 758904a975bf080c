"""Chooses the implementation of the record format: compiled, or numpy and plain Python.

The extension `kalda.records._records` is built with the package where a C compiler exists. It needs neither
numpy nor pyarrow to be imported, so ``kalda --version`` may ask. Both implementations return the same and
raise the same.
"""

from typing import Final

from kalda.common.pure_python import is_pure_wanted

try:
    from kalda.records import _records
except ImportError:
    _extension_interface = None
else:
    _extension_interface = _records.INTERFACE

INTERFACE: Final = 8
"""The version of the extension's functions; an editable install may have an older extension."""

is_built: Final = _extension_interface == INTERFACE
"""Whether the extension can be used."""

_is_used = is_built and not is_pure_wanted


def is_compiled() -> bool:
    """Return whether records are decoded and encoded by compiled code."""
    return _is_used

"""Reads the usual request header in compiled code; in plain Python, `protocol.headers` reads every header."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kalda.protocol.fast.implementation import is_compiled

if TYPE_CHECKING or is_compiled:
    from kalda.protocol.fast import _requests


def _read_none(_frame: memoryview, _client_id: bytes | None) -> None:
    return None


read_usual_header: Final[Callable[[memoryview, bytes | None], tuple[int, int, int, int] | None]] = (
    _requests.read_header if is_compiled else _read_none
)
"""Returns API key, version, correlation id and where the client id ends, if it is this one as before.

The result is None for any other header, and always in plain Python.
"""

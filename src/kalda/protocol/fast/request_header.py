"""Request headers without message objects."""

from typing import TYPE_CHECKING

from kalda.protocol.fast.implementation import is_compiled

if TYPE_CHECKING or is_compiled:
    from kalda.protocol.fast import _requests


def read_usual_header(frame: memoryview, client_id: bytes | None) -> tuple[int, int, int, int] | None:
    """Return API key, version, correlation id and where the client id ends, if it is this one as before.

    The result is None for any other header, and always in plain Python.
    """
    return _requests.read_header(frame, client_id) if is_compiled else None

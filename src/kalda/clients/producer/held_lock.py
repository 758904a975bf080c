"""Refuses a caller that interrupted its own thread within an object, and would wait for its lock for ever."""

import sys
from collections.abc import Container
from types import CodeType

from kalda.clients.errors import IllegalStateError


def check_not_interrupting(holder: object, methods: Container[CodeType]) -> None:
    """Check that the callers of the method that calls this do not run within `methods` of `holder`.

    Raises:
        IllegalStateError: they do: this is a signal handler or a finalizer.
    """
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_code in methods and frame.f_locals.get("self") is holder:
            raise IllegalStateError(
                "a signal handler or a finalizer called the producer while its own thread was within `send` "
                "or `flush`, and would wait for itself; let the handler set a flag or raise an exception, "
                "and call the producer where the program runs"
            )
        frame = frame.f_back

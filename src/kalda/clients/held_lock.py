"""Raises when a caller interrupts its own thread inside an object and would deadlock on the object's lock."""

import sys
from collections.abc import Container
from types import CodeType, FunctionType
from typing import Protocol

from kalda.clients.errors import IllegalStateError


class Reentrant(Protocol):
    """A `threading.RLock`, or a `threading.Condition` with one."""

    def _is_owned(self) -> bool:
        """Whether the calling thread holds it."""


def methods_of(holder: type) -> frozenset[CodeType]:
    """Return the code of the methods of a class, within which a thread may hold the lock of its objects."""
    return frozenset(each.__code__ for each in vars(holder).values() if isinstance(each, FunctionType))


def check_not_interrupting(holder: object, methods: Container[CodeType], client: str, calls: str) -> None:
    """Check that the callers of the method that calls this do not run within `methods` of `holder`.

    `client` and `calls` name the client and what its thread is within, for the message.

    Raises:
        IllegalStateError: they do: this is a signal handler or a finalizer.
    """
    frame = sys._getframe(2).f_back
    while frame is not None:
        if frame.f_code in methods and frame.f_locals.get("self") is holder:
            raise _interrupting(client, calls)
        frame = frame.f_back


def check_not_held(lock: Reentrant, client: str, calls: str) -> None:
    """Check that the calling thread does not hold a lock that the awaited thread needs.

    `client` and `calls` are those of `check_not_interrupting`, whose error this raises.
    """
    if lock._is_owned():
        raise _interrupting(client, calls)


def _interrupting(client: str, calls: str) -> IllegalStateError:
    return IllegalStateError(
        f"a signal handler or a finalizer called the {client} while its own thread was within {calls}, "
        "and would wait for itself; let the handler set a flag or raise an exception, and call the "
        f"{client} where the program runs"
    )

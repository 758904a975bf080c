"""Sets the module that tracebacks, reprs and pickles show for a public class to the one users import."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])


def public(thing: T) -> T:
    """Set the module of a class or function to ``kalda``, which exports it; use it as the first decorator.

    >>> public(type("Producer", (), {}))
    <class 'kalda.Producer'>
    """
    thing.__module__ = "kalda"
    return thing


def public_in(module: str) -> Callable[[T], T]:
    """Return a decorator that sets the module of a class or function to a package that exports it."""

    def set_module(thing: T) -> T:
        thing.__module__ = module
        return thing

    return set_module

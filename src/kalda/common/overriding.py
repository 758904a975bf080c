"""Provides `override`, which marks a method that replaces a method of a base class (PEP 698).

Such a method has a docstring only if it does something that the docstring of the base class does not say.
`typing.override` exists from Python 3.12 on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override as override
else:
    Method = TypeVar("Method", bound=Callable[..., object])

    def override(method: Method) -> Method:
        """Return the method; type checkers report one that overrides nothing."""
        return method

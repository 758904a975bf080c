"""Suggests the name that a user meant, for the error message about one that does not exist."""

from collections.abc import Iterable
from typing import Final

DATA_CUTOFF: Final = 0.75
"""How alike, of 1, two names of topics are: there are many, and most have nothing to do with each other."""


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint to stand behind a message, or the empty text where no name is near.

    >>> did_you_mean("ordrs", ["orders", "flights"]), did_you_mean("x", ["orders"])
    ('; did you mean `orders`?', '')
    """
    # Imported here: only a mistake needs it, and start-up time counts.
    import difflib

    near = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean `{near[0]}`?" if near else ""

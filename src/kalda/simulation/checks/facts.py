"""Keeps the values of keys that clients change one after the other, as far as they are certain: `Facts`."""

from collections.abc import Hashable, Iterator
from typing import Final


class Facts:
    """The values of keys that the responses to operations have made certain.

    An operation without an answer may be done now, later or never: its key stays uncertain from then on.
    """

    def __init__(self) -> None:
        self._known: Final[dict[Hashable, object]] = {}
        self._open: Final[dict[Hashable, object]] = {}
        """The value before, for each key of an operation that has no answer yet."""
        self._uncertain: Final[set[Hashable]] = set()

    def begin(self, key: Hashable) -> None:
        """Note that an operation on a key begins."""
        if key in self._open:
            # The one before never ended: its client was killed.
            self._uncertain.add(key)
        self._open[key] = self._known.pop(key, None)

    def acknowledge(self, key: Hashable, value: object) -> None:
        """Note that the operation succeeded; `value` is the key's value from now on."""
        self._open.pop(key, None)
        if key not in self._uncertain:
            self._known[key] = value

    def refuse(self, key: Hashable) -> None:
        """Note that the operation was refused and left the value unchanged."""
        before = self._open.pop(key, None)
        if before is not None and key not in self._uncertain:
            self._known[key] = before

    def lose(self, key: Hashable) -> None:
        """Note that the operation failed and may still have taken effect."""
        self._open.pop(key, None)
        self._known.pop(key, None)
        self._uncertain.add(key)

    def forget(self, key: Hashable) -> None:
        """The value does not count any more, as the thing is gone or something else changes it."""
        self._known.pop(key, None)

    def is_uncertain(self, key: Hashable) -> bool:
        """Whether the value can never be known again."""
        return key in self._uncertain or key in self._open

    def get(self, key: Hashable) -> object:
        """Return the value; None if it is not certain."""
        return self._known.get(key)

    def items(self) -> Iterator[tuple[Hashable, object]]:
        """Return the keys with a certain value."""
        return iter(list(self._known.items()))

"""Defines `Namespace`, the prefix of a set of names that its clients do not see."""

import re
from typing import Final

NAME_BYTES_MAX: Final = 32
"""Characters of a namespace's name: a topic's name has at most 249, and the prefix takes its part of them."""

_NAME: Final = re.compile(rf"[A-Za-z0-9]{{1,{NAME_BYTES_MAX}}}")
_PREFIX: Final = re.compile(rf"ns-[A-Za-z0-9]{{1,{NAME_BYTES_MAX}}}-")

WILDCARD: Final = "*"


class Namespace:
    """A set of topics, groups, transactional ids and users, whose stored names begin with `prefix`.

    >>> space = Namespace("7")
    >>> space.stored("orders")
    'ns-7-orders'
    >>> space.plain("ns-7-orders"), space.plain("ns-8-orders")
    ('orders', None)
    """

    __slots__ = ("name", "prefix", "prefix_bytes")

    def __init__(self, name: str) -> None:
        """Check the name.

        Raises:
            ValueError: it does not consist of 1 to 32 letters of ASCII and digits.
        """
        if _NAME.fullmatch(name) is None:
            raise ValueError(
                f"namespace {name!r}: a name has 1 to {NAME_BYTES_MAX} characters, all of them letters of "
                "ASCII and digits"
            )
        self.name: Final = name
        # No name contains a dash, so no prefix is the beginning of another one. A dot or an underscore would
        # make the controller compare each new topic with all others, since metrics confuse the two.
        self.prefix: Final = f"ns-{name}-"
        self.prefix_bytes: Final = self.prefix.encode()

    def stored(self, name: str) -> str:
        """Return the name under which the broker knows what a client calls `name`."""
        return self.prefix + name

    def plain(self, name: str) -> str | None:
        """Return the client's form of a stored name; None if it is not of this namespace."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    def has(self, name: str) -> bool:
        """Return whether a stored name is of this namespace."""
        return name.startswith(self.prefix)

    def without(self, text: str) -> str:
        """Return a message of the broker with the names in it as the client knows them."""
        return text.replace(self.prefix, "")


def prefix_of(name: str) -> str | None:
    """Return the prefix of the namespace that a stored name belongs to; None if it belongs to none."""
    found = _PREFIX.match(name)
    return None if found is None else found.group()


def listener_of(base: str, space: Namespace) -> str:
    """Return the name of a namespace's listener, which has the security and the settings of another one."""
    return f"{base}/{space.prefix}"


def prefix_of_listener(name: str) -> str:
    """Return the prefix of the namespace that a listener is of; an empty one for a listener of brokers."""
    return name.partition("/")[2]


def base_listener(name: str) -> str:
    """Return the name of the listener whose settings apply to a listener: its own, or that of its base."""
    return name.partition("/")[0]

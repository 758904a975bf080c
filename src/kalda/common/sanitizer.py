"""Encodes the names of users, clients and addresses for paths and metrics, as Kafka's ``Sanitizer`` does."""

from urllib.parse import quote, unquote


def sanitize(name: str) -> str:
    """Return a name percent-encoded, so that no character of it has a meaning in a path.

    >>> sanitize("CN=alice, OU=Ops")
    'CN%3Dalice%2C%20OU%3DOps'
    """
    return quote(name, safe="")


def desanitize(text: str) -> str:
    """Return the name that was percent-encoded."""
    return unquote(text)

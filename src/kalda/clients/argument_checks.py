"""Checks arguments of the clients' methods: topics, partitions, numbers of records, timeouts, objects.

It is not the broker's check of names: a name that only a broker refuses goes to the broker, whose rules
decide.

What a maintainer must not break: a value that a request cannot carry must be refused before it becomes one of
the topics that a client asks for. Else no later metadata request of that client can be sent.
"""

from collections.abc import Iterable
from typing import Final

from kalda.clients.errors import ClientConfigError
from kalda.common.types import TopicPartition

_LENGTH_MAX: Final = 32_767
"""The bytes that a string of the protocol can carry."""
_PARTITION_MAX: Final = 2**31 - 1


def check_topic_name(name: object) -> None:
    """Refuse what cannot be the name of a topic.

    Raises:
        ValueError: it is not a string, or one that a request cannot carry.
    """
    if not isinstance(name, str):
        raise ValueError(f"topic={name!r} is a {type(name).__name__}; it takes the topic's name, a str")
    if len(name) > _LENGTH_MAX:
        raise ValueError(f"topic={name[:20]!r}... has {len(name)} characters; a topic's name has up to 249")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"topic={name!r} is not valid Unicode; a topic's name has letters, digits, '.', '_' and '-'"
        ) from error


def checked_partition(value: object) -> TopicPartition:
    """Return a `TopicPartition` for one, or for a pair of a topic and a number.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise ValueError(
            f"{value!r} is not a partition; it takes a TopicPartition, or a pair of a topic and a number"
        )
    topic, number = value
    check_topic_name(topic)
    if not isinstance(number, int) or not 0 <= number <= _PARTITION_MAX:
        raise ValueError(f"partition={number!r} of topic {topic} is not allowed: it takes an int, at least 0")
    return TopicPartition(topic, number)


def check_max_records(value: object) -> None:
    """Refuse what cannot be the most records that a poll returns.

    Raises:
        ValueError: it is not an int, or less than 1.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_records={value!r} is not allowed: it takes an int, at least 1")


def check_timeout(value: object) -> None:
    """Refuse what is not a time in seconds, before a method that takes one has changed anything.

    Raises:
        TypeError: it is not a number.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"timeout_s={value!r} is a {type(value).__name__}; it takes seconds, a float")


def check_interceptors(interceptors: object, methods: Iterable[str]) -> None:
    """Refuse what is not a sequence of objects with these methods.

    Raises:
        ClientConfigError: it is one object, a class or a name; or an object lacks a method.
    """
    if not isinstance(interceptors, list | tuple):
        raise ClientConfigError(f"interceptors={interceptors!r} is not allowed: it takes a list of objects")
    for each in interceptors:
        check_object("interceptors", each, methods)


def check_object(name: str, value: object, methods: Iterable[str]) -> None:
    """Refuse an argument that is a class, or an object without one of these methods.

    Raises:
        ClientConfigError: it is so; the message names the argument and the method.
    """
    if isinstance(value, type):
        raise ClientConfigError(
            f"{name}: {value.__name__} is a class; it takes an object, {value.__name__}()"
        )
    for method in methods:
        if not callable(getattr(value, method, None)):
            raise ClientConfigError(
                f"{name}: {value!r} has no method {method}; it takes an object with {', '.join(methods)}"
            )

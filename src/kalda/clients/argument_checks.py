"""Checks arguments of the clients' methods: topics, partitions, numbers of records, timeouts, objects.

It is not the broker's check of names: a name that only a broker refuses goes to the broker, whose rules
decide.

A value that a request cannot carry must be refused before it becomes one of the topics that a client asks
for: otherwise every later metadata request of that client fails.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeGuard

from kalda.clients.errors import ClientConfigError
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_LENGTH_MAX: Final = 32_767
"""The bytes that a string of the protocol can carry."""
_MILLISECONDS_MIN: Final = 1000
"""Whole seconds that nobody waits for, while other clients' `poll` takes such milliseconds."""
_PARTITION_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 1
_LISTENER_METHODS: Final = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")


def check_topic_name(name: object) -> None:
    """Refuse what cannot be the name of a topic.

    Raises:
        ValueError: it is not a string, or one that a request cannot carry.
    """
    if not isinstance(name, str):
        raise ValueError(f"topic={name!r} is {a_type(name)}; it takes the topic's name, a str")
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
    if not _is_integer(number) or not 0 <= number <= _PARTITION_MAX:
        raise ValueError(f"partition={number!r} of topic {topic} is not allowed: it takes an int, at least 0")
    return TopicPartition(topic, number)


def checked_partitions(partitions: object) -> list[TopicPartition]:
    """Return partitions as a user names them: `TopicPartition`s, or pairs of a topic and a number.

    Raises:
        ValueError: it is no collection of them; a single partition is none, either.
    """
    if isinstance(partitions, TopicPartition | str | bytes) or not isinstance(partitions, Iterable):
        raise ValueError(f"partitions={partitions!r} is not allowed: it takes a list of TopicPartition")
    return [checked_partition(partition) for partition in partitions]


def check_collection(what: str, value: object) -> None:
    """Refuse one name or partition where several are taken: its letters would count as names.

    Raises:
        ValueError: it is a str, bytes or a `TopicPartition`, or cannot be iterated over.
    """
    if isinstance(value, TopicPartition | str | bytes) or not isinstance(value, Iterable):
        raise ValueError(f"{what}: {value!r} is {a_type(value)}; it takes a list")


def check_offset(what: str, value: object) -> None:
    """Refuse what cannot be an offset or a timestamp of a request; `what` names it in the message.

    Raises:
        ValueError: it is not an int, or one that a request cannot carry.
    """
    if not _is_integer(value):
        raise ValueError(f"{what}={value!r} is {a_type(value)}; it takes an int")
    if not -_OFFSET_MAX <= value <= _OFFSET_MAX:
        raise ValueError(f"{what}={value} is not allowed: it takes at most {_OFFSET_MAX}")


def check_timestamp(what: str, value: object) -> None:
    """Refuse what cannot be the timestamp of a record; `what` names it in the message.

    Raises:
        ValueError: it is not an int, is negative, or larger than a request can carry.
    """
    check_offset(what, value)
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{what}={value} is not allowed: it takes milliseconds since the epoch, at least 0")


def check_headers(headers: object) -> None:
    """Refuse what cannot be the headers of a record.

    Raises:
        ValueError: it is not a sequence of pairs of a str, and bytes or None.
    """
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        raise ValueError(
            f"headers={headers!r} is {a_type(headers)}; it takes a list of pairs of a name and bytes"
        )
    for each in headers:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise ValueError(f"header {each!r} is not allowed: it takes a pair of a name and bytes or None")
        name, value = each
        if not isinstance(name, str):
            raise ValueError(f"header {each!r}: its name is {a_type(name)}; it takes a str")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            kind = a_type(value)
            raise ValueError(f"header {each!r}: its value is {kind}; it takes bytes or None")


def check_callback(name: str, value: object) -> None:
    """Refuse what cannot be called; None is no callback.

    Raises:
        ValueError: it is neither a function nor None.
    """
    if value is not None and not callable(value):
        raise ValueError(f"{name}={value!r} is {a_type(value)}; it takes a function, or None")


def check_listener(listener: object) -> None:
    """Refuse what cannot be a rebalance listener; None is no listener.

    Raises:
        ClientConfigError: it is a class, or lacks a method.
    """
    if listener is not None:
        check_object("listener", listener, _LISTENER_METHODS)


def check_max_records(value: object) -> None:
    """Refuse what cannot be the most records that a poll returns.

    Raises:
        ValueError: it is not an int, or less than 1.
    """
    if not _is_integer(value) or value < 1:
        raise ValueError(f"max_records={value!r} is not allowed: it takes an int, at least 1")


def check_timeout(value: object) -> None:
    """Check that an argument is a time in seconds, before its method changes anything.

    Raises:
        TypeError: it is not a number.
        ValueError: it is NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"timeout_s={value!r} is {a_type(value)}; it takes seconds, a float")
    if isinstance(value, int) and value >= _MILLISECONDS_MIN:
        warn_of_milliseconds(value)
    if value != value:
        raise ValueError("timeout_s=nan is not allowed: it takes seconds, a float")


@lru_cache
def warn_of_milliseconds(timeout_s: int) -> None:
    """Warn once of a time in seconds that looks like milliseconds."""
    logger.warning("timeout_s=%d waits up to %d seconds; the unit is seconds.", timeout_s, timeout_s)


def check_interceptors(interceptors: object, methods: Iterable[str]) -> None:
    """Check that an argument is a sequence of objects with these methods.

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
        ClientConfigError: the argument is a class or lacks a method; the message names both.
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


def a_type(value: object) -> str:
    """Return the type of a value for a message.

    >>> a_type(7), a_type("7")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)

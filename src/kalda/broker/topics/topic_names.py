"""Validates topic names, and lists the names of internal topics.

A metric's name has the topic's name with every ``.`` replaced by ``_``. Two names that differ only there
collide, and only one of them may exist.
"""

import re
from typing import Final

from kalda.cluster.history import changes as history
from kalda.common.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX: Final = 249
"""A directory is named ``<topic>-<partition>``, gets a suffix for its deletion, and may have 255 bytes."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The name of KRaft's metadata log, which clients cannot create."""
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
CLUSTER_HISTORY_TOPIC: Final = history.TOPIC
INTERNAL_TOPICS: Final = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, CLUSTER_HISTORY_TOPIC, SHARE_GROUP_STATE_TOPIC}
)

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """Return why a topic cannot have this name, or None if it can."""
    if not name:
        return "A topic's name must not be empty."
    if name in (".", ".."):
        return f"A topic's name must not be '{name}'."
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        shown = f"{name[:20]}…" if len(name) > 20 else name
        return f"A topic's name has at most {TOPIC_NAME_LENGTH_MAX} characters; '{shown}' has {len(name)}."
    if not _LEGAL.fullmatch(name):
        return f"A topic's name has only ASCII letters and digits, '.', '_' and '-'; '{name}' has others."
    return None


def unknown_topic_error(name: str) -> ErrorCode:
    """Return the error for a topic that does not exist: another one if no topic can have the name."""
    if topic_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def validate_topic_name(name: str) -> None:
    """Raise an error if no topic can have the name.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_internal_topic(name: str) -> bool:
    """Return whether brokers keep state of their own in the topic."""
    return name in INTERNAL_TOPICS


def has_collision_characters(name: str) -> bool:
    """Return whether another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return a key that is equal for colliding names: ``a_b`` for ``a.b`` and ``a_b``."""
    return name.replace(".", "_")

"""The rules of topic names.

A metric's name may carry a topic's with every ``.`` turned into ``_``; so two names that differ only there
collide, and only one of them may exist.
"""

import re
from typing import Final

from kalda.common.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX: Final = 249
"""A directory is named ``<topic>-<partition>``, may get a suffix while it is deleted, and has 255 bytes."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Reserved: KRaft's metadata log, which nobody may create as a topic."""
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})

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


def validate_topic_name(name: str) -> None:
    """Refuse a name that no topic can have.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    problem = topic_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_internal_topic(name: str) -> bool:
    """Return whether the brokers keep their own state in the topic."""
    return name in INTERNAL_TOPICS


def has_collision_characters(name: str) -> bool:
    """Return whether another name could collide with this one."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Return what two colliding names have in common: ``a.b`` and ``a_b`` both give ``a_b``."""
    return name.replace(".", "_")

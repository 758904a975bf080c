"""Translates the values of fields that name something: one `NameKind` for each kind of name.

`stored` is the way in, from a client's request to the broker, `plain` the way out. Either may look at the
struct around the field: what a config resource names depends on its type. Names that no broker accepts, as an
empty topic, pass unchanged, so that the broker refuses them as it would refuse them to any client.
"""

import re
from collections.abc import Collection
from typing import Any, ClassVar, Final, Protocol

from kalda.common.regex import RegexError, compile_regex
from kalda.common.types import UUID
from kalda.protocol.namespaces.consumer_protocol import rename_assignment, rename_subscription
from kalda.protocol.namespaces.namespace import WILDCARD, Namespace


class TopicNames(Protocol):
    """The broker's metadata of topics that translations need."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the stored name of a topic, or None."""


class _Foreign:
    """The type of `FOREIGN`."""

    def __repr__(self) -> str:
        return "FOREIGN"


FOREIGN: Final = _Foreign()
"""The plain value of what is not in the namespace: the struct or element that has it is left out."""


class NameKind:
    """A kind of name; this one passes values unchanged."""

    __slots__ = ()

    is_of_whole: ClassVar[bool] = False
    """Whether a foreign name leaves out the struct that has the array, not only the element."""

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Return a client's value as the broker knows it."""
        return value

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Return a stored value as the client knows it, or `FOREIGN`."""
        return value


class Prefixed(NameKind):
    """A name that gets the prefix, unless it is one that passes."""

    __slots__ = ("_passing",)

    def __init__(self, passing: Collection[str] = ()) -> None:
        self._passing: Final = frozenset(passing)

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix."""
        return value if value is None or value in self._passing else space.prefix + value

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        if value is None or value in self._passing:
            return value
        plain = space.plain(value)
        return FOREIGN if plain is None else plain


class Principal(NameKind):
    """A principal with its type, as ``User:alice``; also ``User:*``, all users of the namespace."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix behind the type."""
        if value is None or ":" not in value:
            return value
        kind, _, name = value.partition(":")
        return f"{kind}:{space.prefix}{name}"

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        if value is None:
            return value
        kind, _, name = value.partition(":")
        plain = space.plain(name)
        return FOREIGN if plain is None else f"{kind}:{plain}"


class Text(NameKind):
    """A message for people, which may quote names."""

    __slots__ = ()

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix out of the text."""
        return value if value is None else space.without(value)


class TopicId(NameKind):
    """The id of a topic. That of another namespace's topic is changed into one that no topic has."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Mask the id of a topic that is not in the namespace."""
        name = topics.topic_name(value)
        return value if name is None or space.has(name) else UUID(bytes=mask_id(value.bytes))

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Return the id that the client sent."""
        raw = value.bytes
        return UUID(bytes=mask_id(raw)) if is_masked_id(raw) else value


def mask_id(raw: bytes) -> bytes:
    """Invert an id; doing it twice gives the id."""
    return bytes(byte ^ 0xFF for byte in raw)


def is_masked_id(raw: bytes) -> bool:
    """Return whether an id is the inverse of a random one, whose version is 4 and whose variant is 2.

    >>> is_masked_id(mask_id(bytes.fromhex("0123456789ab4def8123456789abcdef")))
    True
    """
    return raw[6] >> 4 == 0xB and raw[8] >> 6 == 0b01


class ConfigResource(NameKind):
    """The name of what has settings, by the number in `resource_type`."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix, unless it is a broker's."""
        return space.prefix + value if value and struct.resource_type in _NAMED_CONFIGS else value

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        if not value or struct.resource_type not in _NAMED_CONFIGS:
            return value
        plain = space.plain(value)
        return FOREIGN if plain is None else plain


_NAMED_CONFIGS: Final = frozenset((2, 16, 32))
"""Topics, client metrics and groups; the others are brokers and their loggers."""


class AclResource(NameKind):
    """The resource of an ACL or of a filter; the arguments are the fields of its type and its pattern's type.

    All resources of a namespace, ``*``, are those whose names begin with its prefix.
    """

    __slots__ = ("_pattern_type", "_resource_type")

    def __init__(self, resource_type: str, pattern_type: str) -> None:
        self._resource_type: Final = resource_type
        self._pattern_type: Final = pattern_type

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix to the names of topics, groups, transactional ids and users."""
        resource_type = getattr(struct, self._resource_type)
        if value is None or resource_type not in _NAMED_RESOURCES | {ANY_RESOURCE}:
            return value
        if value == WILDCARD:
            setattr(struct, self._pattern_type, PREFIXED_PATTERN)
            return space.prefix
        if resource_type == USER_RESOURCE:
            return PRINCIPAL.stored(space, topics, value, struct)
        return value if value == CLUSTER_NAME else space.prefix + value

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        resource_type = getattr(struct, self._resource_type)
        if value is None or resource_type not in _NAMED_RESOURCES:
            return value
        if resource_type == USER_RESOURCE and value != space.prefix:
            return PRINCIPAL.plain(space, topics, value, struct)
        plain = space.plain(value)
        if plain is None:
            return FOREIGN
        if plain:
            return plain
        setattr(struct, self._pattern_type, LITERAL_PATTERN)
        return WILDCARD


ANY_RESOURCE: Final = 1
USER_RESOURCE: Final = 7
_NAMED_RESOURCES: Final = frozenset((2, 3, 5, USER_RESOURCE))
"""Topics, groups, transactional ids and users; the others are the cluster and delegation tokens."""
CLUSTER_NAME: Final = "kafka-cluster"
ANY_PATTERN: Final = 1
LITERAL_PATTERN: Final = 3
PREFIXED_PATTERN: Final = 4


class QuotaEntity(NameKind):
    """The user or client id that has a quota; the default of the namespace is the prefix alone.

    Quotas of addresses belong to the cluster, and pass.
    """

    __slots__ = ()

    is_of_whole = True

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix."""
        return space.prefix + (value or "") if struct.entity_type in _NAMED_ENTITIES else value

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        if struct.entity_type not in _NAMED_ENTITIES:
            return value
        plain = None if value is None else space.plain(value)
        return FOREIGN if plain is None else plain or None


_NAMED_ENTITIES: Final = frozenset(("user", "client-id"))


class QuotaMatch(NameKind):
    """What an entity is to match in a filter: a name, the default, or any name."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix to a name; the default of the namespace is a name for the broker."""
        if struct.entity_type not in _NAMED_ENTITIES or struct.match_type not in (_EXACT, _DEFAULT):
            return value
        struct.match_type = _EXACT
        return space.prefix + (value or "")


_EXACT: Final = 0
_DEFAULT: Final = 1


class Pattern(NameKind):
    """A regular expression in RE2's syntax that is to match whole names."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Put the prefix before the expression. A wrong one passes, for the broker to refuse."""
        if not value:
            return value
        try:
            compile_regex(value)
        except RegexError:
            return value
        return f"{_head(space)}{_without_anchors(value)})"

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        head = _head(space)
        if not value or not value.startswith(head) or not value.endswith(")"):
            return value
        return value[len(head) : -1].replace(_ANCHOR, "^")


def _head(space: Namespace) -> str:
    return f"{space.prefix}(?:"


_ANCHOR: Final = "(?:)"
"""Stands for a ``^``: behind a prefix it would never match, and in front of a whole name it says nothing."""

_PIECES: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:[^:\]]*:\]|[^\]\\])*\]|\(\?[a-zA-Z-]+\)|\((?:\?[^:)>]*[:>])?|[\^|]|.",
    re.DOTALL,
)


def _without_anchors(regex: str) -> str:
    r"""Replace each ``^`` and ``\A`` where an alternative begins.

    >>> _without_anchors("^a|(^b[^c])")
    '(?:)a|((?:)b[^c])'
    """
    out = []
    begins = True
    for piece in _PIECES.findall(regex):
        if begins and piece in ("^", "\\A"):
            out.append(_ANCHOR)
            continue
        out.append(piece)
        # Flags match nothing.
        begins = piece == "|" or (piece.startswith("(") and (begins or not piece.endswith(")")))
    return "".join(out)


class Subscription(NameKind):
    """The bytes of a classic member's subscription."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix to the topics."""
        return rename_subscription(value, lambda name: space.prefix_bytes + name)

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        return rename_subscription(value, lambda name: plain_bytes(space, name))


class Assignment(NameKind):
    """The bytes of a classic member's assignment."""

    __slots__ = ()

    def stored(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Add the prefix to the topics."""
        return rename_assignment(value, lambda name: space.prefix_bytes + name)

    def plain(self, space: Namespace, topics: TopicNames, value: Any, struct: Any) -> Any:
        """Take the prefix away."""
        return rename_assignment(value, lambda name: plain_bytes(space, name))


def plain_bytes(space: Namespace, name: bytes) -> bytes | None:
    """Return the client's form of a stored name, both in UTF-8; None if it is not of the namespace."""
    prefix = space.prefix_bytes
    return name[len(prefix) :] if name.startswith(prefix) else None


TOPIC: Final = Prefixed(("", ".", ".."))
GROUP: Final = Prefixed(("",))
GROUP_OR_EMPTY: Final = Prefixed()
"""A group whose name may be empty, as consumers without a group have it; it is the namespace's own."""
TRANSACTIONAL_ID: Final = Prefixed(("",))
COORDINATOR_KEY: Final = Prefixed()
USER: Final = Prefixed(("",))
PRINCIPAL: Final = Principal()
TEXT: Final = Text()
TOPIC_ID: Final = TopicId()
CONFIG_RESOURCE: Final = ConfigResource()
ACL_RESOURCE: Final = AclResource("resource_type", "pattern_type")
ACL_CREATION: Final = AclResource("resource_type", "resource_pattern_type")
ACL_FILTER: Final = AclResource("resource_type_filter", "pattern_type_filter")
QUOTA_ENTITY: Final = QuotaEntity()
QUOTA_MATCH: Final = QuotaMatch()
PATTERN: Final = Pattern()
SUBSCRIPTION: Final = Subscription()
ASSIGNMENT: Final = Assignment()

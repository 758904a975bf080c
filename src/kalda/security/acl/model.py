"""Defines access control entries and the resources that they are about, with the protocol's numbers."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from kalda.common.public import public

WILDCARD: Final = "*"
"""The name of the literal pattern for every resource of its type, and the host that is every host."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

WILDCARD_PRINCIPAL: Final = "User:*"


class _Named(IntEnum):
    """A number of the protocol with the words of Kafka's tools and znodes."""

    # That of Enum is of the name, and in Python; members are parts of keys that requests look up.
    __hash__ = int.__hash__

    @property
    def title(self) -> str:
        """The name in camel case, as in JSON: ``TransactionalId``."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the member of a number; 0 (UNKNOWN) for one that is not known."""
        try:
            return cls(number)
        except ValueError:
            return cls(0)

    @classmethod
    def of_title(cls, text: str) -> Self:
        """Return the member of a name in any case, with or without underscores.

        Raises:
            ValueError: there is none.
        """
        wanted = text.replace("_", "").replace("-", "").lower()
        for member in cls:
            if member.name.replace("_", "").lower() == wanted:
                return member
        raise ValueError(f"{text} is not one of {', '.join(each.title for each in cls if each > 1)}")


@public
class ResourceType(_Named):
    """The kind of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@public
class PatternType(_Named):
    """How a pattern's name stands for the names of resources (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@public
class PermissionType(_Named):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@public
class AclOperation(_Named):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


_A = AclOperation
RESOURCE_OPERATIONS: Final[dict[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            _A.READ,
            _A.WRITE,
            _A.CREATE,
            _A.DESCRIBE,
            _A.DELETE,
            _A.ALTER,
            _A.DESCRIBE_CONFIGS,
            _A.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({_A.READ, _A.DESCRIBE, _A.DELETE}),
    ResourceType.CLUSTER: frozenset(
        {
            _A.CREATE,
            _A.CLUSTER_ACTION,
            _A.DESCRIBE_CONFIGS,
            _A.ALTER_CONFIGS,
            _A.IDEMPOTENT_WRITE,
            _A.ALTER,
            _A.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_A.DESCRIBE, _A.WRITE, _A.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_A.DESCRIBE}),
    ResourceType.USER: frozenset({_A.CREATE_TOKENS, _A.DESCRIBE_TOKENS}),
}
"""The operations that make sense for each type, as in Kafka's ``AclEntry.supportedOperations``."""


@public
@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """A resource, all resources whose names begin alike, or all of a type."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.pattern_type.title} {self.resource_type.title} {self.name}"


@public
@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """Allows or denies an operation to a principal from a host."""

    principal: str
    """As ``User:alice``; ``User:*`` is everybody."""
    host: str
    """An address, a range of addresses such as ``10.1.0.0/16``, or ``*``."""
    operation: AclOperation
    permission: PermissionType


@public
@dataclass(frozen=True, slots=True)
class AclBinding:
    """An entry and the resources that it is about."""

    pattern: ResourcePattern
    entry: AccessControlEntry


@public
@dataclass(frozen=True, slots=True)
class AclFilter:
    """Matches bindings; ANY and None match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    @property
    def only_pattern(self) -> ResourcePattern | None:
        """The one pattern that the filter can match; None if there may be several."""
        is_exact = self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        if self.name is None or self.resource_type is ResourceType.ANY or not is_exact:
            return None
        return ResourcePattern(self.resource_type, self.name, self.pattern_type)

    def matches(self, binding: AclBinding) -> bool:
        """Whether a binding is among those that the filter stands for."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether a pattern is among those that the filter stands for.

        MATCH finds the patterns that apply to the resource of the filter's name.
        """
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether an entry is among those that the filter stands for."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PermissionType.ANY, entry.permission)
        )

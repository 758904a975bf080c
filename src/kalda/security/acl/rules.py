"""Decides what the entries of a cluster allow, as Kafka's ``AclAuthorizer`` does.

An operation is allowed if no entry that applies denies it and one allows it. An entry applies if its pattern
is the resource's name, a prefix of it, or ``*``. Where no entry applies to a resource at all,
``allow.everyone.if.no.acl.found`` decides. READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS
implies DESCRIBE_CONFIGS, but only for what allows: a denied DESCRIBE does not deny READ.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from kalda.protocol.namespaces.namespace import prefix_of
from kalda.security.acl import hosts
from kalda.security.acl.model import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
"""The operations whose allowance allows an operation too."""


class AclRules:
    """The entries of a cluster by their patterns."""

    def __init__(
        self, *, super_users: Collection[str] = (), allows_everyone_by_default: bool = False
    ) -> None:
        """`super_users` are principals such as ``User:admin``, who may do everything."""
        self._super_users: Final = frozenset(super_users)
        self._allows_by_default: Final = allows_everyone_by_default
        self._entries: Final[dict[ResourcePattern, frozenset[AccessControlEntry]]] = {}
        self._prefixes: Final[dict[ResourceType, dict[int, set[str]]]] = {}
        """By their lengths, so that a name is cut only where a prefix may end: clients send long names."""
        self.namespaces: Final[set[str]] = set()
        """The prefixes of the open namespaces: their users have a wildcard of their own, and are super users
        there if the users of the cluster with these names are."""

    def set(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replace the entries of a pattern; none forgets it."""
        found = frozenset(entries)
        if found:
            self._entries[pattern] = found
        else:
            self._entries.pop(pattern, None)
        if pattern.pattern_type is not PatternType.PREFIXED:
            return
        by_length, name = self._prefixes.setdefault(pattern.resource_type, {}), pattern.name
        alike = by_length.setdefault(len(name), set())
        if found:
            alike.add(name)
        else:
            alike.discard(name)
            if not alike:
                del by_length[len(name)]

    def patterns(self) -> list[ResourcePattern]:
        """Return the patterns that have entries."""
        return list(self._entries)

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """Return the entries of a pattern."""
        return self._entries.get(pattern, frozenset())

    def bindings(self) -> Iterator[AclBinding]:
        """Yield every entry with its pattern."""
        for pattern, entries in self._entries.items():
            for entry in entries:
                yield AclBinding(pattern, entry)

    def is_super_user(self, principal: str) -> bool:
        """Whether a principal may do everything."""
        return principal in self._super_users or (
            bool(self.namespaces) and self._in_namespace(principal)[0] in self._super_users
        )

    def _in_namespace(self, principal: str) -> tuple[str, str]:
        """Return a principal as its namespace knows it, and the wildcard for all users there."""
        kind, _, name = principal.partition(":")
        prefix = prefix_of(name)
        if prefix is None or prefix not in self.namespaces:
            return principal, WILDCARD_PRINCIPAL
        return f"{kind}:{name.removeprefix(prefix)}", f"{kind}:{prefix}{WILDCARD}"

    def _applying_to(self, principal: str) -> tuple[str, ...]:
        """Return the principals of entries that apply to a principal."""
        if not self.namespaces:
            return principal, WILDCARD_PRINCIPAL
        return principal, WILDCARD_PRINCIPAL, self._in_namespace(principal)[1]

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a principal may do an operation on one resource."""
        if self.is_super_user(principal):
            return True
        principals = self._applying_to(principal)
        applying = list(self._applying(resource_type, name))
        if not applying:
            return self._allows_by_default
        if _has(applying, principals, host, frozenset({operation}), PermissionType.DENY):
            return False
        wanted = _IMPLYING.get(operation, frozenset({operation}))
        return _has(applying, principals, host, wanted, PermissionType.ALLOW)

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether a principal may do an operation on at least one resource of a type (KIP-679)."""
        if self.is_super_user(principal):
            return True
        principals = self._applying_to(principal)

        def names(pattern_type: PatternType, permission: PermissionType) -> set[str]:
            return {
                pattern.name
                for pattern, entries in self._entries.items()
                if (pattern.resource_type, pattern.pattern_type) == (resource_type, pattern_type)
                and _has(entries, principals, host, frozenset({operation}), permission)
            }

        denied = names(PatternType.LITERAL, PermissionType.DENY)
        if WILDCARD in denied:
            return False
        if self._allows_by_default:
            return True
        denied_prefixes = names(PatternType.PREFIXED, PermissionType.DENY)

        def is_denied(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

        allowed = names(PatternType.LITERAL, PermissionType.ALLOW)
        return any(
            name == WILDCARD or (name not in denied and not is_denied(name)) for name in allowed
        ) or any(not is_denied(prefix) for prefix in names(PatternType.PREFIXED, PermissionType.ALLOW))

    def excludes_any(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        overlaps: Callable[[ResourcePattern], bool],
        *,
        by_denial: bool,
    ) -> bool:
        """Whether a principal may not do an operation on some of many resources that entries name.

        `overlaps` returns whether a pattern, other than ``*``, is for any of them. With `by_denial` only
        entries that deny count, and not that none allows.
        """
        if self.is_super_user(principal):
            return False
        principals = self._applying_to(principal)
        wanted = frozenset({operation})
        for pattern, entries in self._entries.items():
            if pattern.resource_type is not resource_type:
                continue
            is_denied = _has(entries, principals, host, wanted, PermissionType.DENY)
            if by_denial and not is_denied:
                continue
            if pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD:
                if is_denied:
                    return True
            elif overlaps(pattern):
                # A name that begins with a prefix and is no other entry's: none has this character.
                is_prefix = pattern.pattern_type is PatternType.PREFIXED
                name = f"{pattern.name}\0" if is_prefix else pattern.name
                if is_denied or not self.allows(principal, host, operation, resource_type, name):
                    return True
        return False

    def _applying(self, resource_type: ResourceType, name: str) -> Iterator[AccessControlEntry]:
        """Yield the entries that apply to a resource."""
        entries = self._entries
        for literal in (WILDCARD, name) if name != WILDCARD else (name,):
            yield from entries.get(ResourcePattern(resource_type, literal), ())
        for length, prefixes in self._prefixes.get(resource_type, {}).items():
            prefix = name[:length]
            if prefix in prefixes:
                yield from entries[ResourcePattern(resource_type, prefix, PatternType.PREFIXED)]


def _has(
    entries: Iterable[AccessControlEntry],
    principals: Collection[str],
    host: str,
    operations: frozenset[AclOperation],
    permission: PermissionType,
) -> bool:
    return any(
        entry.permission is permission
        and entry.principal in principals
        and (entry.operation is AclOperation.ALL or entry.operation in operations)
        and hosts.applies(entry.host, host)
        for entry in entries
    )

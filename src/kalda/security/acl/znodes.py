"""Writes and reads ACLs as Kafka keeps them in ZooKeeper.

/kafka-acl/TYPE/NAME                          the entries of a literal pattern
/kafka-acl-extended/prefixed/TYPE/NAME        those of a prefix
/kafka-acl-changes/acl_changes_N              sequential: "the entries of TYPE:NAME changed"
/kafka-acl-extended-changes/acl_changes_N     the same for the other pattern types, in JSON
"""

import json
from collections.abc import Iterable
from typing import Final

from kalda.common.received_json import loads_received
from kalda.security.acl.model import (
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

LITERAL_ROOT: Final = "/kafka-acl"
PREFIXED_ROOT: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"
TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)

_ROOTS: Final = {PatternType.LITERAL: LITERAL_ROOT, PatternType.PREFIXED: PREFIXED_ROOT}
_VERSION: Final = 1


class AclSchemaError(ValueError):
    """The data of a znode is not an ACL, or not a notification of a change."""


def persistent_paths() -> list[str]:
    """Return the znodes that must exist, parents first."""
    return [
        LITERAL_CHANGES,
        EXTENDED_CHANGES,
        *(type_path(pattern_type, each) for pattern_type in _ROOTS for each in TYPES),
    ]


def type_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """Return the parent of the patterns of a type."""
    return f"{_ROOTS[pattern_type]}/{resource_type.title}"


def path(pattern: ResourcePattern) -> str:
    """Return the znode of a pattern."""
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def changes_path(pattern_type: PatternType) -> str:
    """Return the parent of the notifications about patterns of a type."""
    return LITERAL_CHANGES if pattern_type is PatternType.LITERAL else EXTENDED_CHANGES


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    """Write the entries of a pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in sorted(entries, key=lambda entry: (entry.principal, entry.operation, entry.host))
    ]
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":")).encode()


def decode_entries(data: bytes) -> frozenset[AccessControlEntry]:
    """Read the entries of a pattern; an empty znode has none.

    Raises:
        AclSchemaError: the data is malformed.
    """
    if not data:
        return frozenset()
    try:
        document = loads_received(data)
        if document["version"] != _VERSION:
            raise AclSchemaError(f"ACLs of version {document['version']}; only {_VERSION} is known")
        return frozenset(
            AccessControlEntry(
                str(each["principal"]),
                str(each["host"]),
                AclOperation.of_title(each["operation"]),
                PermissionType.of_title(each["permissionType"]),
            )
            for each in document["acls"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AclSchemaError(f"not a list of ACLs: {error}") from error


def encode_change(pattern: ResourcePattern) -> bytes:
    """Write a notification that the entries of a pattern changed."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return json.dumps(
        {
            "version": _VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        },
        separators=(",", ":"),
    ).encode()


def decode_change(pattern_type: PatternType, data: bytes) -> ResourcePattern:
    """Read a notification from one of the two parents, of which LITERAL has its own.

    Raises:
        AclSchemaError: the data is malformed.
    """
    try:
        if pattern_type is PatternType.LITERAL:
            kind, separator, name = data.decode().partition(":")
            if not separator:
                raise AclSchemaError(f"not TYPE:NAME: {data[:100]!r}")
            return ResourcePattern(ResourceType.of_title(kind), name)
        document = loads_received(data)
        return ResourcePattern(
            ResourceType.of_title(document["resourceType"]),
            str(document["name"]),
            PatternType.of_title(document["patternType"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AclSchemaError(f"not a change of an ACL: {error}") from error

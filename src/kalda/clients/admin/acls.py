"""Offers the values of admin calls on ACLs, which brokers and clients share."""

from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

__all__ = [
    "AccessControlEntry",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "PatternType",
    "PermissionType",
    "ResourcePattern",
    "ResourceType",
]

"""Holds the values that admin calls on the cluster take and return; names are those of Java's client."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from kalda.clients.admin.acl_operation import AclOperation
from kalda.clients.reprs import fields_html
from kalda.common.public import public
from kalda.common.types import BrokerEndpoint
from kalda.protocol.schema import VersionRange


@public
@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its live brokers."""

    cluster_id: str | None
    controller: BrokerEndpoint | None
    """None while there is no controller. In a KRaft cluster it is any broker."""
    nodes: tuple[BrokerEndpoint, ...]
    """The brokers, sorted by id."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the cluster; None if that was not asked for."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class SupportedVersionRange:
    """The levels of a feature that a broker supports."""

    min_version: int
    max_version: int


@public
@dataclass(frozen=True, slots=True)
class FinalizedVersionRange:
    """The levels of a feature that the whole cluster uses."""

    min_version_level: int
    max_version_level: int


@public
@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """The features of a cluster (KIP-584); all empty from brokers before 2.7."""

    finalized_features: Mapping[str, FinalizedVersionRange]
    finalized_features_epoch: int | None
    """Grows with each change; None if the broker has no finalized features."""
    supported_features: Mapping[str, SupportedVersionRange]


@public
@dataclass(frozen=True, slots=True)
class BrokerApiVersions:
    """What one broker serves."""

    api_versions: Mapping[int, VersionRange]
    """The versions of each API by its number, also of APIs that Kalda does not know."""
    features: FeatureMetadata


@public
class UpgradeType(IntEnum):
    """In which direction the level of a feature may change; the numbers are the protocol's."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """A lower level without loss of metadata."""
    UNSAFE_DOWNGRADE = 3
    """A lower level that may lose metadata."""


@public
@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; below 1, the feature is no longer finalized."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE

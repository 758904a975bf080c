"""Implements the admin client's operations on the cluster and its features.

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kalda import __version__
from kalda.clients.admin.acls import AclOperation, operations_from_bits
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID, AnyBroker, Controller
from kalda.clients.errors import UnsupportedApiError
from kalda.clients.reprs import fields_html
from kalda.common.api_keys import ApiKey
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import BrokerEndpoint
from kalda.net.client.api_versions import CLIENT_SOFTWARE_NAME
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kalda.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
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
    """The APIs and versions that one broker serves."""

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


class ClusterMethods(AdminMethods):
    """Describes the cluster and its brokers, and changes features."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout_ms: int | None = None
    ) -> ClusterDescription:
        """Describe the cluster: id, controller, live brokers.

        Args:
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        return await self._run_one(DescribeCluster(include_authorized_operations), timeout_ms)

    async def describe_api_versions(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, BrokerApiVersions]:
        """Describe which APIs and features each broker serves, and in which versions.

        Args:
            broker_ids: The brokers; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, the versions or the error.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(DescribeApiVersions(), brokers, timeout_ms, outcomes=outcomes)

    async def describe_features(self, *, timeout_ms: int | None = None) -> FeatureMetadata:
        """Describe the features that the cluster uses, and those that a broker supports (KIP-584).

        Args:
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        return await self._run_one(DescribeFeatures(), timeout_ms)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Raise or lower the levels of features, all of them or none (brokers 2.7 and newer, KIP-584).

        Args:
            updates: By feature, the new level.
            validate_only: Check only whether the levels are possible (brokers 3.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By feature, None or the error: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(UpdateFeatures(updates, validate_only), updates, timeout_ms, outcomes=outcomes)


_CLUSTER_OPERATIONS: Final = range(8, 11)
"""The versions of Metadata that return the authorised operations on the cluster."""
_UPGRADE_TYPE_FROM: Final = 1
_NO_RESULTS_FROM: Final = 2


class DescribeCluster(AdminOperation[None, ClusterDescription]):
    """Describes the cluster. Its only key is None."""

    title = "describe cluster"
    route = AnyBroker()

    def __init__(self, include_authorized_operations: bool) -> None:
        self._include_authorized_operations: Final = include_authorized_operations

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, ClusterDescription]]:
        """Ask by DescribeCluster (KIP-700), or by Metadata if the broker is older than 2.8."""
        include = self._include_authorized_operations
        if context.versions.supports(ApiKey.DESCRIBE_CLUSTER):
            message = DescribeClusterRequest(include_cluster_authorized_operations=include)
            yield AdminRequest.of(message, DescribeClusterResponse, keys, self._read)
            return
        if include and context.versions.latest(ApiKey.METADATA) not in _CLUSTER_OPERATIONS:
            raise UnsupportedApiError(
                f"{self.title}: the broker is older than 2.3 and returns no authorised operations; "
                "call without `include_authorized_operations`"
            )
        metadata = MetadataRequest(
            topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=include
        )
        yield AdminRequest.of(metadata, MetadataResponse, keys, self._read_metadata)

    def _read(self, response: DescribeClusterResponse, answers: Answers[None, ClusterDescription]) -> None:
        if response.error_code:
            answers.fail(None, response.error_code, response.error_message)
            return
        nodes = {each.broker_id: _endpoint(each.broker_id, each) for each in response.brokers}
        bits = response.cluster_authorized_operations
        answers.succeed(None, self._described(response.cluster_id, response.controller_id, nodes, bits))

    def _read_metadata(self, response: MetadataResponse, answers: Answers[None, ClusterDescription]) -> None:
        nodes = {each.node_id: _endpoint(each.node_id, each) for each in response.brokers}
        bits = response.cluster_authorized_operations
        answers.succeed(None, self._described(response.cluster_id, response.controller_id, nodes, bits))

    def _described(
        self, cluster_id: str | None, controller_id: int, nodes: Mapping[int, BrokerEndpoint], bits: int
    ) -> ClusterDescription:
        return ClusterDescription(
            cluster_id,
            nodes.get(controller_id),
            tuple(nodes[broker_id] for broker_id in sorted(nodes)),
            operations_from_bits(bits) if self._include_authorized_operations else None,
        )

    @override
    def what(self, key: None) -> str:
        return self.title


def _endpoint(broker_id: int, broker: DescribeClusterBroker | MetadataResponseBroker) -> BrokerEndpoint:
    return BrokerEndpoint(broker_id, broker.host, broker.port, broker.rack)


class DescribeFeatures(AdminOperation[None, FeatureMetadata]):
    """Describes the features of the cluster. Its only key is None."""

    title = "describe features"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, FeatureMetadata]]:
        """Request the APIs and versions of the broker."""

        def read(response: ApiVersionsResponse, answers: Answers[None, FeatureMetadata]) -> None:
            if response.error_code:
                answers.fail(None, response.error_code)
            else:
                answers.succeed(None, _features(response))

        yield AdminRequest.of(_api_versions(), ApiVersionsResponse, keys, read)

    @override
    def what(self, key: None) -> str:
        return self.title


class DescribeApiVersions(AdminOperation[int, BrokerApiVersions]):
    """Describes what each broker serves; the keys are broker ids."""

    title = "describe API versions of broker"
    route = BROKER_WITH_ID

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, BrokerApiVersions]]:
        def read(response: ApiVersionsResponse, answers: Answers[int, BrokerApiVersions]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code)
                return
            ranges = {
                each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys
            }
            answers.succeed(broker_id, BrokerApiVersions(dict(sorted(ranges.items())), _features(response)))

        yield AdminRequest.of(_api_versions(), ApiVersionsResponse, keys, read)


def _api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__)


def _features(response: ApiVersionsResponse) -> FeatureMetadata:
    epoch = response.finalized_features_epoch
    return FeatureMetadata(
        {
            each.name: FinalizedVersionRange(each.min_version_level, each.max_version_level)
            for each in sorted(response.finalized_features, key=lambda each: each.name)
        },
        None if epoch < 0 else epoch,
        {
            each.name: SupportedVersionRange(each.min_version, each.max_version)
            for each in sorted(response.supported_features, key=lambda each: each.name)
        },
    )


class UpdateFeatures(AdminOperation[str, None]):
    """Raises or lowers the levels of features (KIP-584)."""

    title = "update feature"
    route = Controller()

    def __init__(self, updates: Mapping[str, FeatureUpdate], validate_only: bool) -> None:
        self._updates: Final = updates
        self._validate_only: Final = validate_only

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, None]]:
        """Send all features in one request, which is done as a whole or not at all."""
        version = context.versions.latest(ApiKey.UPDATE_FEATURES)
        has_types = version >= _UPGRADE_TYPE_FROM
        is_unsafe = any(self._updates[key].upgrade_type is UpgradeType.UNSAFE_DOWNGRADE for key in keys)
        if not has_types and (self._validate_only or is_unsafe):
            raise UnsupportedApiError(
                f"{self.title}: brokers before 3.3 have neither `validate_only` nor unsafe downgrades"
            )
        message = UpdateFeaturesRequest(
            timeout_ms=context.timeout_ms,
            feature_updates=[_update(key, self._updates[key], has_types) for key in keys],
            validate_only=self._validate_only,
        )

        def read(response: UpdateFeaturesResponse, answers: Answers[str, None]) -> None:
            if response.error_code or version >= _NO_RESULTS_FROM:
                for key in keys:
                    if response.error_code:
                        answers.fail(key, response.error_code, response.error_message)
                    else:
                        answers.succeed(key, None)
                return
            for each in response.results:
                if each.error_code:
                    answers.fail(each.feature, each.error_code, each.error_message)
                else:
                    answers.succeed(each.feature, None)

        yield AdminRequest.of(message, UpdateFeaturesResponse, keys, read)


def _update(feature: str, update: FeatureUpdate, has_types: bool) -> FeatureUpdateKey:
    if has_types:
        return FeatureUpdateKey(
            feature=feature, max_version_level=update.max_version_level, upgrade_type=update.upgrade_type
        )
    return FeatureUpdateKey(
        feature=feature,
        max_version_level=update.max_version_level,
        allow_downgrade=update.upgrade_type is not UpgradeType.UPGRADE,
    )

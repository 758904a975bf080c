"""UpdateFeatures (key 57), versions 0-2: changes the finalized features of the cluster (KIP-584, KIP-778).

Only the controller serves it. A request makes all of its updates or none. The response follows when the
controller applies the new levels; the other brokers follow within a moment. v1 adds the upgrade type and
validate_only, v2 drops the results.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.metadata.features import Features, FeatureUpdate, UpgradeType
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kalda.zookeeper.errors import ZooKeeperError

TYPES_FROM: Final = 1
"""The first version with the type of an update."""


def handle(
    controller: ControllerDriver,
    cluster_store: ClusterStore,
    features: Features,
    request: UpdateFeaturesRequest,
    context: RequestContext,
) -> UpdateFeaturesResponse | Coroutine[Any, Any, UpdateFeaturesResponse]:
    """Return NOT_CONTROLLER if this broker is not the controller; else update the features."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
        if context.api_version >= TYPES_FROM
        else FeatureUpdate(
            each.feature,
            # In v0 a level below 1 removes the feature.
            max(each.max_version_level, 0),
            UpgradeType.SAFE_DOWNGRADE if each.allow_downgrade else UpgradeType.UPGRADE,
        )
        for each in request.feature_updates
    ]
    return _update(cluster_store, features, request, updates)


async def _update(
    cluster_store: ClusterStore,
    features: Features,
    request: UpdateFeaturesRequest,
    updates: list[FeatureUpdate],
) -> UpdateFeaturesResponse:
    try:
        async with asyncio.timeout(request.timeout_ms / 1000 if request.timeout_ms > 0 else None):
            registered = await cluster_store.brokers()
            brokers = {
                broker_id: {name: (low, high) for name, low, high in info.features}
                for broker_id, info in registered.items()
            }
            await features.update(updates, brokers, validates_only=request.validate_only)
    except TimeoutError:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)
    except ZooKeeperError:
        return error_response(request, ErrorCode.FEATURE_UPDATE_FAILED)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=each.name, error_message=None) for each in updates],
    )


def error_response(request: UpdateFeaturesRequest, code: ErrorCode) -> UpdateFeaturesResponse:
    """Return a response with the error for the whole request."""
    return UpdateFeaturesResponse(error_code=code, error_message=code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.UPDATE_FEATURES,
    versions=(0, 2),
    build=lambda services: partial(handle, services.controller, services.cluster_store, services.features),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (each.feature for each in request.feature_updates),
)

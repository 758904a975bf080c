"""ApiVersions (key 18), versions 0-5: returns the API keys and versions that this broker serves.

From v3 a client names its software, whose form is checked (KIP-511), and the response has the supported and
finalized features (KIP-584); ``transaction.version`` 2 makes clients use the second transaction protocol. A
feature whose lowest level is 0 is returned from v4 on, because older clients reject it. The dispatcher
answers a request of an unknown version: version 0, UNSUPPORTED_VERSION and the same list. From v5 a client
may name the broker that it means to reach: another one answers REBOOTSTRAP_REQUIRED (KIP-1242).

Kalda's own APIs are in the response only if the client's software is `kalda` or a broker of Kalda: no other
client can use them, and tools would print them as unknown.
"""

import re
from bisect import bisect_left
from functools import partial
from operator import attrgetter
from typing import Final

from kalda.broker.metadata.features import SUPPORTED, Features
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.listener_releases import ListenerReleases, has_versions_in_refusal, restricted
from kalda.common.api_keys import KALDA_KEYS_FROM, ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import BROKER_SOFTWARE_NAME
from kalda.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kalda.protocol.releases import versions_of

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_CHARACTERS_MAX: Final = 255
"""Of the name and the version that are kept with a connection; a client need not have logged in to send them,
and Kafka does not limit them."""
_OF_SHARE_GROUPS: Final = frozenset(
    (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )
)
"""They are returned while ``share.version`` is in force."""
_KALDA_SOFTWARE: Final = "kalda"
_KEY: Final = attrgetter("api_key")
_SOFTWARE_FROM_VERSION: Final = 3
_LEVEL_0_FROM_VERSION: Final = 4
"""KIP-1022, KAFKA-17011: older clients reject 0."""


def handle(
    releases: ListenerReleases,
    api_versions: tuple[ApiVersion, ...],
    cluster_id: str,
    broker_id: int,
    features: Features,
    request: ApiVersionsRequest,
    context: RequestContext,
) -> ApiVersionsResponse | None:
    """Return every API with its versions, and the features; None if the listener's release has no answer."""
    connection = context.connection
    if request.client_software_name == BROKER_SOFTWARE_NAME:
        releases.add_broker(connection)
    release = releases.of(connection)
    if release is not None and context.api_version > versions_of(release).get(ApiKey.API_VERSIONS, -1):
        return _refusal(api_versions, context, release)
    if context.api_version >= _SOFTWARE_FROM_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return error_response(request, ErrorCode.INVALID_REQUEST)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        cluster_id,
        broker_id,
    ):
        return error_response(request, ErrorCode.REBOOTSTRAP_REQUIRED)
    if context.api_version >= _SOFTWARE_FROM_VERSION:
        connection.software = (
            request.client_software_name[:SOFTWARE_CHARACTERS_MAX],
            request.client_software_version[:SOFTWARE_CHARACTERS_MAX],
        )
    if release is not None:
        # The features that Kalda finalizes came after the last of these releases.
        return ApiVersionsResponse(api_keys=restricted(api_versions, release))
    if not features.share_version and request.client_software_name != BROKER_SOFTWARE_NAME:
        # Another broker may keep the list for longer than the feature stays away.
        api_versions = tuple(each for each in api_versions if each.api_key not in _OF_SHARE_GROUPS)
    if request.client_software_name not in (_KALDA_SOFTWARE, BROKER_SOFTWARE_NAME):
        # Ours are behind all others.
        api_versions = api_versions[: bisect_left(api_versions, KALDA_KEYS_FROM, key=_KEY)]
    return ApiVersionsResponse(
        api_keys=list(api_versions),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or context.api_version >= _LEVEL_0_FROM_VERSION
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
        ],
    )


def _refusal(
    api_versions: tuple[ApiVersion, ...], context: RequestContext, release: str
) -> ApiVersionsResponse | None:
    """Answer an unknown version of the request as the release did: in version 0, or by closing."""
    if ApiKey.API_VERSIONS not in versions_of(release):
        context.connection.close(f"Kafka {release}, as which this listener answers, has no ApiVersions")
        return None
    context.api_version = 0
    keys = restricted(api_versions, release) if has_versions_in_refusal(release) else []
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[each for each in keys if each.api_key == ApiKey.API_VERSIONS],
    )


def error_response(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """Return a response with the error and no list."""
    return ApiVersionsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.API_VERSIONS,
    versions=(0, 5),
    build=lambda services: partial(
        handle,
        services.releases,
        services.api_versions,
        services.cluster_id,
        services.broker_id,
        services.features,
    ),
    error_response=error_response,
    access=None,
    is_served_early=True,
)

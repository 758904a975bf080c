"""ApiVersions (key 18): returns the APIs of a broker with their versions; the first request of a client.

v1 adds the throttle time. v2 throttles after the response instead of before. v3 is flexible and adds the
client's software name and version and the features (KIP-482, KIP-511, KIP-584). v4 lets a feature begin at
version 0 (KIP-1022); before, such features must be left out of the response. v5 names the broker that the
client means (KIP-1242).

Two exceptions live in `registry`: the response header stays at version 0 in every version, and a request
of a version that the broker does not know is answered with a v0 body.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class ApiVersionsRequest(Message, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+"):
    """A client asks what the broker serves.

    `cluster_id` and `node_id` name the broker that the client means to reach, if it knows.
    """

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)
    cluster_id: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = wire(INT32, "5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    """One API and the inclusive range of its versions that the broker serves."""

    api_key: int = wire(INT16, "0+")
    min_version: int = wire(INT16, "0+")
    max_version: int = wire(INT16, "0+")


class SupportedFeatureKey(Struct):
    """A feature that the broker supports, and the range of its levels."""

    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


class FinalizedFeatureKey(Struct):
    """A feature that the whole cluster runs, and the levels in force."""

    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+"):
    """The APIs and features that the broker serves.

    With UNSUPPORTED_VERSION the list still holds the range of ApiVersions itself, so that a client can step
    down.
    """

    error_code: int = wire(INT16, "0+")
    api_keys: list[ApiVersion] = wire(array(ApiVersion), "0+")
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(
        array(SupportedFeatureKey), "3+", ignorable=True, tag=0
    )
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = wire(
        array(FinalizedFeatureKey), "3+", ignorable=True, tag=2
    )
    zk_migration_ready: bool = wire(BOOL, "3+", ignorable=True, tag=3)

"""UpdateFeatures (key 57): raises or lowers the finalized levels of the cluster's features (KIP-584).

v1 replaces the flag that allows a lower level by a type, and can validate without a change (KIP-778). v2 has
one error for the whole response, no longer one for each feature.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, wire


class FeatureUpdateKey(Struct):
    """One feature and the level it is to have; below 1 it is finalised no longer.

    `upgrade_type` is 1 for a raise, 2 and 3 for a level that may go down without or with loss.
    """

    feature: str = wire(STRING, "0+")
    max_version_level: int = wire(INT16, "0+")
    allow_downgrade: bool = wire(BOOL, "0")
    upgrade_type: int = wire(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    """Features to change."""

    timeout_ms: int = wire(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = wire(array(FeatureUpdateKey), "0+")
    validate_only: bool = wire(BOOL, "1+")


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")


class UpdateFeaturesResponse(Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    """All of the request was done, or nothing."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    results: list[UpdatableFeatureResult] = wire(array(UpdatableFeatureResult), "0-1", ignorable=True)

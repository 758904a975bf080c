import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import (
    VERSION_MAX,
    ApiVersionsNegotiation,
    NodeApiVersions,
    highest_shared_version,
)
from kalda.net.client.client_errors import BrokerResponseError, UnsupportedApiError
from kalda.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kalda.protocol.schema import VersionRange

NEWEST = VERSION_MAX
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


def versions_of(**ranges: tuple[int, int]) -> NodeApiVersions:
    return NodeApiVersions("b:1", {ApiKey[name]: VersionRange(*each) for name, each in ranges.items()}, {})


def test_a_new_broker_answers_at_once_with_versions_and_features() -> None:
    negotiation = ApiVersionsNegotiation("b:1")

    assert NEWEST == negotiation.version
    found = negotiation.received(
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=3, min_version=0, max_version=12)],
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", min_version_level=0, max_version_level=2)
            ],
            finalized_features_epoch=7,
        )
    )

    assert found is not None
    assert {3: VersionRange(0, 12)} == found.ranges
    assert {"transaction.version": 2} == found.finalized_features
    assert 7 == found.finalized_features_epoch


def test_an_older_broker_is_asked_again_in_a_version_that_it_names() -> None:
    """KIP-511: it answers in version 0, with the versions that it has."""
    negotiation = ApiVersionsNegotiation("b:1")
    known = [ApiVersion(api_key=18, min_version=0, max_version=2)]

    assert negotiation.received(ApiVersionsResponse(error_code=UNSUPPORTED, api_keys=known)) is None
    assert 2 == negotiation.version


def test_a_broker_before_kip_511_is_asked_in_version_0() -> None:
    """Kafka before 2.4 sends the error alone."""
    negotiation = ApiVersionsNegotiation("b:1")

    assert negotiation.received(ApiVersionsResponse(error_code=UNSUPPORTED)) is None
    assert 0 == negotiation.version
    with pytest.raises(BrokerResponseError, match="ApiVersions from b:1: UNSUPPORTED_VERSION"):
        negotiation.received(ApiVersionsResponse(error_code=UNSUPPORTED))


def test_rounds_end_also_with_a_broker_that_names_the_version_it_refuses() -> None:
    negotiation = ApiVersionsNegotiation("b:1")
    lying = [ApiVersion(api_key=18, min_version=0, max_version=99)]
    refusal = ApiVersionsResponse(error_code=UNSUPPORTED, api_keys=lying)

    for version in range(NEWEST - 1, -1, -1):
        assert negotiation.received(refusal) is None
        assert version == negotiation.version
    with pytest.raises(BrokerResponseError):
        negotiation.received(refusal)


def test_another_error_ends_the_negotiation() -> None:
    with pytest.raises(BrokerResponseError, match="CLUSTER_AUTHORIZATION_FAILED"):
        ApiVersionsNegotiation("b:1").received(
            ApiVersionsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [((0, 12), (4, 17), 12), ((0, 12), (0, 9), 9), ((0, 3), (4, 17), None), ((4, 17), (0, 3), None)],
)
def test_highest_shared_version(ours: tuple[int, int], theirs: tuple[int, int], shared: int | None) -> None:
    assert shared == highest_shared_version(VersionRange(*ours), VersionRange(*theirs))


def test_an_api_that_the_broker_does_not_list_is_not_shared() -> None:
    assert highest_shared_version(VersionRange(0, 1), None) is None


def test_the_callers_bounds_narrow_the_versions() -> None:
    versions = versions_of(METADATA=(2, 9))

    assert 9 == versions.latest(ApiKey.METADATA)
    assert 5 == versions.latest(ApiKey.METADATA, version_max=5)
    assert versions.supports(ApiKey.METADATA, 9)
    assert not versions.supports(ApiKey.METADATA, 10)
    assert not versions.supports(ApiKey.FETCH)


def test_no_shared_version_is_an_error_with_both_ranges() -> None:
    versions = versions_of(METADATA=(2, 4))

    with pytest.raises(UnsupportedApiError, match=r"b:1 offers versions 2 to 4 of Metadata; .* 5 to 13"):
        versions.latest(ApiKey.METADATA, version_min=5)
    with pytest.raises(UnsupportedApiError, match="b:1 offers no version of Fetch"):
        versions.latest(ApiKey.FETCH)

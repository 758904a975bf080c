from typing import Any, cast

import pytest

from kalda.broker.metadata.features import Features
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.handlers import HANDLERS, advertised_versions, api_versions
from kalda.broker.requests.handlers.api_versions import SOFTWARE_CHARACTERS_MAX
from kalda.broker.requests.listener_releases import ListenerReleases
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.common.api_keys import KALDA_KEYS_FROM, ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import BROKER_SOFTWARE_NAME
from kalda.protocol import registry
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.runtimes import seeded
from tests.unit.broker.admin_fakes import context


def ask(
    version: int, name: str = "librdkafka", software_version: str = "2.6.1", **meant: Any
) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version, **meant)
    return respond(request, context(version))


def respond(
    request: ApiVersionsRequest, asked: RequestContext, share_version: int = 1
) -> ApiVersionsResponse:
    features = Features(cast("Any", None), seeded(), RegisteredBrokers(cast("Any", None)))
    features.finalized, features.epoch = {"transaction.version": 2, "share.version": share_version}, 5
    response = api_versions.handle(
        ListenerReleases({}), advertised_versions(), "of-this", 3, features, request, asked
    )
    assert response is not None
    return response


@pytest.mark.parametrize("version", range(6))
def test_exactly_what_is_registered_is_told(version: int) -> None:
    """Clients switch features on by this list: what is half built must not be in it."""
    response = ask(version)

    assert ErrorCode.NONE == response.error_code
    kafkas = [h for h in HANDLERS if h.key < KALDA_KEYS_FROM]
    assert [(h.key, *h.versions_advertised) for h in sorted(kafkas, key=lambda h: h.key)] == [
        (entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys
    ]


def test_share_groups_are_advertised_while_their_feature_is_in_force() -> None:
    """A client that sees the requests takes them for served, and has no other way to read as a queue."""
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0")
    with_feature = {each.api_key for each in respond(request, context(4)).api_keys}
    without = {each.api_key for each in respond(request, context(4), share_version=0).api_keys}
    assert {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92} == with_feature - without


def test_another_broker_sees_share_groups_in_any_case() -> None:
    """It keeps the list for as long as its connection lasts, and the feature may come meanwhile."""
    request = ApiVersionsRequest(client_software_name=BROKER_SOFTWARE_NAME, client_software_version="1")
    assert 85 in {each.api_key for each in respond(request, context(4), share_version=0).api_keys}


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        ("of-this", 3, ErrorCode.NONE),
        (None, 4, ErrorCode.NONE),
        ("of-this", 4, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("of-another", 3, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_means_another_broker_is_sent_back(
    cluster_id: str | None, node_id: int, expected: ErrorCode
) -> None:
    """An address may pass to another broker while a client knows it from old metadata (KIP-1242)."""
    response = ask(5, cluster_id=cluster_id, node_id=node_id)
    assert (expected, expected is ErrorCode.NONE) == (response.error_code, bool(response.api_keys))


def test_clients_are_not_asked_for_metrics_that_are_shown_nowhere() -> None:
    """librdkafka logs a line about its telemetry at each start if a broker has the APIs."""
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    shown = {each.api_key for each in advertised_versions()}
    assert telemetry == shown - {each.api_key for each in advertised_versions(shows_metrics=False)}


@pytest.mark.parametrize("name", ["kalda", "apache-kafka-java", "librdkafka", "Kalda"])
def test_kaldas_own_apis_are_announced_to_its_clients_only(name: str) -> None:
    """Tools of Kafka would print them as unknown; a client that does not ask cannot be confused."""
    keys = {entry.api_key for entry in ask(4, name).api_keys}

    own = {handler.key for handler in HANDLERS if handler.key >= KALDA_KEYS_FROM}
    assert own
    assert (own if name == "kalda" else set()) == {key for key in keys if key >= KALDA_KEYS_FROM}


@pytest.mark.parametrize("version", [3, 4])
def test_features_in_force_are_told(version: int) -> None:
    """Level 0 in a range makes older clients give up (KAFKA-17011)."""
    response = ask(version)

    assert [("transaction.version", 2), ("share.version", 1)] == [
        (each.name, each.max_version_level) for each in response.finalized_features
    ]
    assert 5 == response.finalized_features_epoch
    assert (version == 4) == bool(response.supported_features)


@pytest.mark.parametrize(
    ("name", "software_version", "is_valid"),
    [
        ("apache-kafka-java", "3.9.1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a", "1.", False),
        ("a b", "1", False),
        ("ä", "1", False),
        ("a\n", "1", False),
    ],
)
def test_a_clients_software_is_checked_from_v3(name: str, software_version: str, is_valid: bool) -> None:
    code = ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST

    assert code == ask(3, name, software_version).error_code
    assert ErrorCode.NONE == ask(2, name, software_version).error_code


def test_a_long_name_of_software_is_not_kept() -> None:
    """A connection keeps it for as long as it is open, and its client need not have logged in."""
    asked = context(3)
    request = ApiVersionsRequest(client_software_name="n" * 100_000, client_software_version="1" * 100_000)
    assert ErrorCode.NONE == respond(request, asked).error_code
    assert [SOFTWARE_CHARACTERS_MAX] * 2 == [len(each) for each in asked.connection.software]


def test_an_answer_can_be_changed_without_changing_the_next() -> None:
    """Dispatch writes an error into the answer to a request of an unknown version."""
    ask(0).api_keys.clear()

    assert ask(0).api_keys


def test_handlers_serve_only_versions_that_are_declared() -> None:
    assert len(HANDLERS) == len({handler.key for handler in HANDLERS})
    for handler in HANDLERS:
        declared = registry.spec(handler.key).versions
        low, high = handler.versions
        assert declared.includes(low), handler.key.title
        assert declared.includes(high), handler.key.title


def test_old_librdkafka_compresses_only_if_produce_begins_at_0() -> None:
    """librdkafka before 2.11.1 (its issue 4956) sends uncompressed batches otherwise."""
    produce = [handler for handler in HANDLERS if handler.key is ApiKey.PRODUCE]

    assert all(handler.versions_advertised[0] == 0 for handler in produce)

"""What a listener that answers as an older release offers, and what it refuses."""

import struct
from typing import Any, cast

import pytest

from kalda.broker.metadata.features import Features
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.handlers import advertised_versions, api_versions
from kalda.broker.requests.listener_releases import ListenerReleases
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.common.api_keys import ApiKey
from kalda.common.config_def import ConfigError
from kalda.common.errors import ErrorCode
from kalda.net.connection import Connection
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.settings import BrokerConfig
from tests.runtimes import seeded


class FakeConnection:
    def __init__(self, listener: str = "OLD") -> None:
        self.listener = listener
        self.closed: list[str] = []

    def close(self, reason: str, level: int = 0) -> None:
        self.closed.append(reason)


class Broker:
    """The parts that answer, with one listener per release in `releases`."""

    def __init__(self, **releases: str) -> None:
        self.releases = ListenerReleases(releases)
        self.handled: list[tuple[int, int]] = []
        self._guarded = self.releases.guarded(
            lambda _, frame: self.handled.append(cast("tuple[int, int]", struct.unpack_from(">hh", frame)))
        )

    def receive(self, connection: FakeConnection, key: int, version: int) -> None:
        self._guarded(cast("Connection", connection), memoryview(bytearray(struct.pack(">hh", key, version))))

    def ask(
        self, connection: FakeConnection, version: int, software: str = "librdkafka"
    ) -> tuple[ApiVersionsResponse | None, int]:
        """Return the response to ApiVersions and the version that it is written in."""
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        features = Features(cast("Any", None), seeded(), RegisteredBrokers(cast("Any", None)))
        features.finalized = {"transaction.version": 2}
        parts = self.releases, advertised_versions(), "cluster", 0, features
        context = RequestContext(cast("Connection", connection), cast("Any", None), version, 1, None, 0.0)
        return api_versions.handle(*parts, request, context), context.api_version


def highest(response: ApiVersionsResponse) -> dict[int, int]:
    return {each.api_key: each.max_version for each in response.api_keys}


def test_an_answer_has_the_apis_and_versions_of_the_release() -> None:
    response, version = Broker(OLD="0.10.0").ask(FakeConnection(), 0)

    assert response is not None
    assert (ErrorCode.NONE, 0) == (response.error_code, version)
    found = highest(response)
    assert (2, 2, 0) == (found[ApiKey.PRODUCE], found[ApiKey.FETCH], found[ApiKey.API_VERSIONS])
    assert ApiKey.CREATE_TOPICS not in found


def test_features_came_after_these_releases() -> None:
    response, _ = Broker(OLD="3.9").ask(FakeConnection(), 4)

    assert response is not None
    assert [] == response.supported_features
    assert [] == response.finalized_features


@pytest.mark.parametrize(
    ("release", "names_versions"), [("0.10.0", False), ("2.3", False), ("2.4", True), ("2.8", True)]
)
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    release: str, names_versions: bool
) -> None:
    """From 2.4 on the refusal names the versions of this request (KIP-511)."""
    response, version = Broker(OLD=release).ask(FakeConnection(), 4)

    assert response is not None
    assert (ErrorCode.UNSUPPORTED_VERSION, 0) == (response.error_code, version)
    assert ([ApiKey.API_VERSIONS] if names_versions else []) == [each.api_key for each in response.api_keys]


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0"])
def test_before_0_10_a_client_that_asks_for_versions_loses_its_connection(release: str) -> None:
    connection = FakeConnection()

    assert (None, 0) == Broker(OLD=release).ask(connection, 0)
    assert 1 == len(connection.closed)
    assert release in connection.closed[0]


@pytest.mark.parametrize(
    ("key", "version", "is_served"),
    [
        (ApiKey.FETCH, 2, True),
        (ApiKey.FETCH, 3, False),
        (ApiKey.FETCH, -1, False),
        (ApiKey.CREATE_TOPICS, 0, False),
        (ApiKey.ACQUIRE_READ_LEASE, 0, False),
        (999, 0, False),
        (ApiKey.API_VERSIONS, 4, True),
    ],
)
def test_what_the_release_did_not_serve_closes_the_connection(
    key: int, version: int, is_served: bool
) -> None:
    broker, connection = Broker(OLD="0.10.0"), FakeConnection()

    broker.receive(connection, key, version)

    assert ([(key, version)] if is_served else []) == broker.handled
    assert ([] if is_served else 1) == (len(connection.closed) or [])


def test_other_listeners_are_not_restricted() -> None:
    broker, connection = Broker(OLD="0.9.0"), FakeConnection("NEW")

    broker.receive(connection, ApiKey.FETCH, 17)
    response, _ = broker.ask(connection, 4)

    assert [(ApiKey.FETCH, 17)] == broker.handled
    assert response is not None
    assert response.finalized_features


def test_brokers_are_not_restricted_among_themselves() -> None:
    broker, connection = Broker(OLD="0.8.2"), FakeConnection()

    response, version = broker.ask(connection, 4, "kalda-broker")
    broker.receive(connection, ApiKey.LEADER_AND_ISR, 7)

    assert response is not None
    assert (ErrorCode.NONE, 4) == (response.error_code, version)
    assert [(ApiKey.LEADER_AND_ISR, 7)] == broker.handled
    # The next connection from the same address is a client's again.
    other = FakeConnection()
    broker.receive(other, ApiKey.LEADER_AND_ISR, 7)
    assert other.closed


def test_without_a_release_nothing_stands_before_the_dispatcher() -> None:
    def handle(connection: Connection, frame: memoryview) -> None:
        """Stand for the dispatcher."""

    assert ListenerReleases({}).guarded(handle) is handle


class TestSetting:
    TWO = "IN://127.0.0.1:1,OUT://127.0.0.1:2"

    def config(self, **settings: str) -> dict[str, str]:
        return BrokerConfig.from_properties(
            {
                "listeners": self.TWO,
                "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
                "inter.broker.listener.name": "IN",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        ).kalda_as_version

    def test_holds_for_every_listener(self) -> None:
        assert {"IN": "2.8", "OUT": "2.8"} == self.config(kalda_as_version="2.8.1")

    def test_one_listener_can_have_its_own(self) -> None:
        own = {"listener.name.out.kalda.as.version": "0.10.2.2"}

        assert {"OUT": "0.10.2"} == self.config(**own)
        assert {"IN": "1.1", "OUT": "0.10.2"} == self.config(**own, kalda_as_version="1.1")
        assert {"IN": "1.1", "OUT": "0.10.2"} == self.config(kalda_as_version="1.1", **own)

    def test_is_absent_by_default(self) -> None:
        assert {} == self.config()

    @pytest.mark.parametrize("name", ["kalda.as.version", "listener.name.out.kalda.as.version"])
    @pytest.mark.parametrize("value", ["4.0", "0.8.1", "x"])
    def test_an_unknown_release_is_refused_with_those_that_are_known(self, name: str, value: str) -> None:
        with pytest.raises(ConfigError, match=rf"`{name}`={value}.*0\.8\.2, 0\.9\.0.*3\.9"):
            self.config(**{name: value})

    def test_an_unknown_listener_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="THIRD is not among `listeners`, which are IN, OUT"):
            self.config(**{"listener.name.third.kalda.as.version": "2.8"})

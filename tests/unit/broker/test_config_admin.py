"""Settings change while the broker runs, by Kafka's rules and with its codes."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from kalda.broker.config import ConfigStore
from kalda.broker.config.config_admin import require_this_broker
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.handlers import alter_configs, describe_configs, incremental_alter_configs
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import SchemaError
from kalda.common.config_values import AlterConfigOpType
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages import alter_configs as legacy
from kalda.protocol.messages import incremental_alter_configs as incremental
from kalda.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kalda.settings.change_rules import ConfigChangeRequest, changed_settings
from kalda.settings.definitions import TOPIC_CONFIG
from tests.unit.broker.admin_fakes import AdminHarness, context
from tests.unit.broker.handler_parts import finished

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]


async def change(
    harness: AdminHarness, resource_type: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    resource = incremental.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response = await incremental_alter_configs.handle(harness.admin, request, context(1))
    codec.encode(response, 1)
    [answer] = response.responses
    assert (resource_type, name) == (answer.resource_type, answer.resource_name)
    return ErrorCode(answer.error_code), answer.error_message


async def replace(harness: AdminHarness, resource_type: int, name: str, **settings: str | None) -> ErrorCode:
    resource = legacy.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            legacy.AlterableConfig(name=setting.replace("_", "."), value=value)
            for setting, value in settings.items()
        ],
    )
    response = await alter_configs.handle(
        harness.admin, legacy.AlterConfigsRequest(resources=[resource]), context(2)
    )
    codec.encode(response, 2)
    return ErrorCode(response.responses[0].error_code)


def described(
    harness: AdminHarness,
    resource_type: int,
    name: str,
    *settings: str,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=list(settings) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    answer = describe_configs.handle(
        harness.cache,
        harness.config,
        harness.store,
        cast("ClusterStore", harness.cluster),
        Replicas(harness.cache),
        0,
        request,
        context(version),
    )
    response = cast(DescribeConfigsResponse, finished(answer))
    return codec.decode(DescribeConfigsResponse, version, codec.encode(response, version)).results[0]


class Replicas:
    """A replica of each partition."""

    def __init__(self, cache: MetadataCache) -> None:
        self.partitions: Mapping[TopicPartition, object] = {
            TopicPartition(name, number): None
            for name in cache.topic_names
            for number in range(cache.partition_count(name))
        }


@pytest.fixture
def harness() -> AdminHarness:
    harness = AdminHarness()
    harness.add_topic("a")
    return harness


def operation(name: str, kind: int, value: str | None) -> ConfigChangeRequest:
    return ConfigChangeRequest(name, AlterConfigOpType(kind), value)


@pytest.mark.parametrize(
    ("stored", "changes", "expected"),
    [
        ({}, [("retention.ms", SET, "1")], {"retention.ms": "1"}),
        ({"retention.ms": "1"}, [("retention.ms", DELETE, None)], {}),
        ({"retention.ms": "1"}, [("retention.ms", DELETE, "ignored")], {}),
        ({}, [("retention.ms", DELETE, None)], {}),
        ({"segment.ms": "1"}, [("retention.ms", SET, "2")], {"segment.ms": "1", "retention.ms": "2"}),
        ({}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ({}, [("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "delete"}),
        (
            {"cleanup.policy": "compact"},
            [("cleanup.policy", APPEND, "delete")],
            {"cleanup.policy": "compact,delete"},
        ),
        (
            {"cleanup.policy": "compact,delete"},
            [("cleanup.policy", SUBTRACT, "compact")],
            {"cleanup.policy": "delete"},
        ),
        ({}, [("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": "delete"}),
        (
            {},
            [("leader.replication.throttled.replicas", APPEND, "0:1,1:2")],
            {"leader.replication.throttled.replicas": "0:1,1:2"},
        ),
    ],
)
def test_what_stored_settings_become(
    stored: dict[str, str], changes: list[Change], expected: dict[str, str]
) -> None:
    assert expected == changed_settings(stored, [operation(*one) for one in changes], TOPIC_CONFIG)


@pytest.mark.parametrize("kind", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
def test_list_operations_need_a_list(kind: int, name: str) -> None:
    with pytest.raises(ApiError) as caught:
        changed_settings({}, [operation(name, kind, "1")], TOPIC_CONFIG)

    assert ErrorCode.INVALID_CONFIG is caught.value.code


def test_a_list_grows_to_what_a_response_can_carry() -> None:
    """A longer one could be stored, and nobody could describe the settings of the topic any more."""
    name = "leader.replication.throttled.replicas"
    stored = {name: ",".join(f"{number}:1" for number in range(4000))}
    change = ConfigChangeRequest(
        name, AlterConfigOpType.APPEND, ",".join(f"{number}:2" for number in range(4000))
    )
    with pytest.raises(ApiError, match="32767 bytes") as caught:
        changed_settings(stored, [change], TOPIC_CONFIG)
    assert ErrorCode.INVALID_CONFIG is caught.value.code


async def test_a_change_is_stored_and_seen_at_once(harness: AdminHarness) -> None:
    heard: list[tuple[str, int]] = []
    harness.store.on_topic_change(lambda topic, log: heard.append((topic, log.retention_ms)))

    assert (ErrorCode.NONE, None) == await change(
        harness, TOPIC, "a", ("retention.ms", SET, "5"), ("segment.bytes", SET, "100")
    )
    assert (ErrorCode.NONE, None) == await change(harness, TOPIC, "a", ("segment.bytes", DELETE, None))

    assert {"retention.ms": "5"} == harness.cluster.stored["topics", "a"]
    assert [("a", 5), ("a", 5)] == heard
    [entry] = described(harness, TOPIC, "a", "retention.ms").configs
    assert ("5", 1) == (entry.value, entry.config_source)


async def test_a_change_repairs_what_is_no_configuration(
    harness: AdminHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Who broke a znode by hand has the ordinary tools to put it right; what was in force is kept."""
    await change(harness, TOPIC, "a", ("cleanup.policy", SET, "compact"))
    await change(harness, BROKER, "", ("max.connections", SET, "7"))
    await change(harness, BROKER, "0", ("max.connections", SET, "8"))

    async def config(entity_type: str, entity_name: str) -> dict[str, str]:
        raise SchemaError(f"the configuration of {entity_type}/{entity_name} is not JSON")

    harness.cluster.config = config  # type: ignore[method-assign]  # what ClusterStore raises for nonsense

    assert (ErrorCode.NONE, None) == await change(harness, TOPIC, "a", ("retention.ms", SET, "5"))
    assert (ErrorCode.NONE, None) == await change(harness, BROKER, "", ("log.segment.bytes", SET, "100"))
    assert (ErrorCode.NONE, None) == await change(harness, BROKER, "0", ("log.segment.bytes", SET, "200"))

    assert {"cleanup.policy": "compact", "retention.ms": "5"} == harness.cluster.stored["topics", "a"]
    assert {"max.connections": "7", "log.segment.bytes": "100"} == harness.cluster.stored[
        "brokers", "<default>"
    ]
    assert {"max.connections": "8", "log.segment.bytes": "200"} == harness.cluster.stored["brokers", "0"]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert (
        "a change of settings replaces a znode that cannot be read: the configuration of topics/a is not JSON"
        == errors[0]
    )
    assert 3 == len(errors)


async def test_checking_alone_changes_nothing(harness: AdminHarness) -> None:
    assert (
        ErrorCode.NONE
        is (await change(harness, TOPIC, "a", ("retention.ms", SET, "5"), validate_only=True))[0]
    )

    assert {} == harness.cluster.stored
    assert {} == harness.store.topic_overrides("a")


@pytest.mark.parametrize(
    ("resource_type", "name", "changes", "expected"),
    [
        (TOPIC, "nowhere", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", [("retention.ms", SET, "five")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("no.such", SET, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", [("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("log.segment.bytes", SET, "100")], ErrorCode.NONE),
        (BROKER, "", [("log.segment.bytes", SET, "100")], ErrorCode.NONE),
        (BROKER, "1", [("log.segment.bytes", SET, "100")], ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", [("log.segment.bytes", SET, "100")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("log.segment.bytes", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("log.retention.ms", SET, "0")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("num.partitions", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.NONE),
        (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("listener.name.x.connections.max.reauth.ms", SET, "9")], ErrorCode.NONE),
        (BROKER, "0", [("connections.max.reauth.ms", SET, "9")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("listener.name.x.connections.max.reauth.ms", SET, "9")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("no.such", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("listener.name.x.ssl.keystore.password", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("ssl.keystore.type", SET, "PEM")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("ssl.keystore.type", SET, "PEM")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("listener.name.x.ssl.keystore.type", SET, "PEM")], ErrorCode.NONE),
        (BROKER, "", [("listener.name.x.ssl.keystore.type", SET, "PEM")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("listener.name.x.ssl.client.auth", SET, "required")], ErrorCode.NONE),
        (BROKER, "0", [("listener.name.x.ssl.client.auth", SET, "none")], ErrorCode.NONE),
        (BROKER, "", [("max.connection.creation.rate", SET, "10")], ErrorCode.NONE),
        (BROKER, "", [("listener.name.x.max.connections", SET, "10")], ErrorCode.NONE),
        (BROKER, "", [("listener.name.x.max.connections", SET, "0")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("max.connections", SET, "10")], ErrorCode.NONE),
        (BROKER, "0", [("leader.replication.throttled.rate", SET, "5")], ErrorCode.NONE),
        (BROKER, "0", [("log.cleaner.threads", SET, "2")], ErrorCode.NONE),
        (BROKER, "", [("log.cleaner.threads", SET, "3")], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("log.cleaner.threads", SET, "0")], ErrorCode.INVALID_REQUEST),
        (1, "a", [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_which_changes_are_allowed(
    harness: AdminHarness, resource_type: int, name: str, changes: list[Change], expected: ErrorCode
) -> None:
    code, message = await change(harness, resource_type, name, *changes)

    assert expected is code
    assert (expected is ErrorCode.NONE) == (message is None)
    assert (expected is ErrorCode.NONE) == bool(harness.cluster.stored)


async def test_a_brokers_settings_reach_its_topics(harness: AdminHarness) -> None:
    heard: list[tuple[str, int]] = []
    harness.store.on_topic_change(lambda topic, log: heard.append((topic, log.segment_bytes)))
    changed: list[frozenset[str]] = []
    harness.store.on_broker_change(changed.append)

    await change(harness, BROKER, "", ("log.segment.bytes", SET, "100"))
    await change(harness, BROKER, "0", ("log.segment.bytes", SET, "200"), ("max.connections", SET, "7"))

    assert [("a", 100), ("a", 200)] == heard
    assert [{"log.segment.bytes"}, {"log.segment.bytes", "max.connections"}] == changed
    assert 7 == harness.config.max_connections
    assert {"log.segment.bytes": "100"} == harness.cluster.stored["brokers", "<default>"]
    [entry] = described(harness, TOPIC, "a", "segment.bytes", synonyms=True).configs
    assert ("200", 2) == (entry.value, entry.config_source)
    assert [2, 3, 5] == [synonym.source for synonym in entry.synonyms]
    [entry] = described(harness, BROKER, "").configs
    assert ("log.segment.bytes", "100", 3) == (entry.name, entry.value, entry.config_source)


async def test_replacing_forgets_what_is_not_named(harness: AdminHarness) -> None:
    await change(harness, TOPIC, "a", ("retention.ms", SET, "5"))

    assert ErrorCode.NONE is await replace(harness, TOPIC, "a", segment_bytes="100")

    assert {"segment.bytes": "100"} == harness.store.topic_overrides("a")
    assert ErrorCode.INVALID_REQUEST is await replace(harness, TOPIC, "a", segment_bytes=None)
    assert ErrorCode.INVALID_CONFIG is await replace(harness, TOPIC, "a", segment_bytes="x")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is await replace(harness, TOPIC, "b", segment_bytes="100")
    assert ErrorCode.NONE is await replace(harness, TOPIC, "a")
    assert {} == harness.store.topic_overrides("a")


async def test_a_resource_named_twice_is_refused_and_others_are_served(harness: AdminHarness) -> None:
    harness.add_topic("b")

    def resource(name: str) -> incremental.AlterConfigsResource:
        setting = incremental.AlterableConfig(name="retention.ms", config_operation=SET, value="5")
        return incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting])

    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource("a"), resource("b"), resource("a")]
    )
    response = await incremental_alter_configs.handle(harness.admin, request, context(1))

    assert [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST] == [
        answer.error_code for answer in response.responses
    ]
    assert [("topics", "b")] == list(harness.cluster.stored)


async def test_changes_of_one_topic_at_the_same_time_are_all_kept(harness: AdminHarness) -> None:
    """Each reads what is stored and writes it back; none may write over another's."""
    slow = harness.cluster.config

    async def config(entity_type: str, entity_name: str) -> dict[str, str]:
        stored = await slow(entity_type, entity_name)
        await asyncio.sleep(0)
        return stored

    harness.cluster.config = config  # type: ignore[method-assign]  # slower, so that they could interleave
    await asyncio.gather(
        change(harness, TOPIC, "a", ("retention.ms", SET, "5")),
        change(harness, TOPIC, "a", ("segment.bytes", SET, "100")),
        change(harness, TOPIC, "a", ("flush.ms", SET, "7")),
    )

    assert {"retention.ms": "5", "segment.bytes": "100", "flush.ms": "7"} == harness.store.topic_overrides(
        "a"
    )


def test_describing_what_is_not_there(harness: AdminHarness) -> None:
    for resource_type, name, code in (
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST),
        (99, "a", ErrorCode.INVALID_REQUEST),
    ):
        result = described(harness, resource_type, name)
        assert (code, []) == (result.error_code, result.configs), (resource_type, name)
        assert (resource_type, name) == (result.resource_type, result.resource_name)


@pytest.mark.parametrize("version", range(5))
async def test_each_version_describes_what_it_can(harness: AdminHarness, version: int) -> None:
    await change(harness, TOPIC, "a", ("retention.ms", SET, "5"))

    result = described(
        harness,
        TOPIC,
        "a",
        "retention.ms",
        "segment.bytes",
        version=version,
        synonyms=version >= 1,
        documentation=version >= 3,
    )

    entries = {entry.name: entry for entry in result.configs}
    own, default = entries["retention.ms"], entries["segment.bytes"]
    assert ("5", "1073741824") == (own.value, default.value)
    assert ((False, True) if version == 0 else (False, False)) == (own.is_default, default.is_default)
    assert ((1, 5) if version >= 1 else (-1, -1)) == (own.config_source, default.config_source)
    assert ([1] if version >= 1 else []) == [synonym.source for synonym in own.synonyms]
    assert ((5, 3) if version >= 3 else (0, 0)) == (own.config_type, default.config_type)
    assert (version >= 3) == bool(own.documentation)


async def test_the_store_loads_and_follows_coordination(caplog: pytest.LogCaptureFixture) -> None:
    """What is stored by hand or by a newer version and is not allowed is left out, with a log line."""
    harness = AdminHarness()
    harness.cluster.stored = {
        ("topics", "a"): {"retention.ms": "5", "no.such": "1"},
        ("brokers", "<default>"): {"log.segment.bytes": "100", "message.max.bytes": "nonsense"},
        ("brokers", "0"): {"max.connections": "7"},
        ("brokers", "1"): {"max.connections": "9"},
    }

    class Following:
        async def close(self) -> None:
            self.is_closed = True

    async def watch_config_changes(callback: object) -> Following:
        return Following()

    harness.cluster.watch_config_changes = watch_config_changes  # type: ignore[attr-defined]  # as Cluster has it
    await harness.store.start(cast("ClusterStore", harness.cluster), 0)
    await harness.store.close()

    assert {"retention.ms": "5"} == harness.store.topic_overrides("a")
    assert (5, 100) == (
        harness.store.log_config("a").retention_ms,
        harness.store.log_config("a").segment_bytes,
    )
    assert 7 == harness.config.max_connections
    assert 1048588 == harness.store.log_config("b").max_message_bytes
    assert 2 == sum("is left out" in record.getMessage() for record in caplog.records)


def test_settings_can_be_loaded_before_there_are_logs() -> None:
    """A broker that had a stored default of topics did not start: its logs are opened after the settings."""

    def no_logs_yet() -> list[str]:
        raise AssertionError("the log manager does not exist yet")

    store = ConfigStore(AdminHarness().config, no_logs_yet)

    store.set_broker({"log.segment.bytes": "100"})

    assert 100 == store.log_config("a").segment_bytes


@pytest.mark.parametrize("name", ["--5", "9" * 5_000, "-", "x", "", "1_0", "\u0663"])
def test_a_broker_whose_id_is_no_number_is_refused(name: str) -> None:
    """The ids --5 and 99…9 were answered by UNKNOWN_SERVER_ERROR."""
    with pytest.raises(ApiError, match="must be an integer"):
        require_this_broker(name, 0)

"""The registry: what is declared, the rules of headers and their exceptions, lazy imports."""

import subprocess
import sys

import pytest

from kalda.common.api_keys import ApiKey
from kalda.protocol import registry
from kalda.protocol.messages.produce import ProduceRequest


def test_request_and_response_of_an_api_agree() -> None:
    for key in registry.declared_keys():
        spec = registry.spec(key)
        assert spec.request_class.SCHEMA.versions == spec.response_class.SCHEMA.versions == spec.versions
        assert spec.request_class.SCHEMA.flexible == spec.response_class.SCHEMA.flexible
        assert spec.request_class.SCHEMA.api_key == spec.response_class.SCHEMA.api_key == key


@pytest.mark.parametrize(
    ("key", "highest", "flexible_from"),
    [
        (ApiKey.PRODUCE, 13, 9),
        (ApiKey.FETCH, 18, 12),
        (ApiKey.LIST_OFFSETS, 11, 6),
        (ApiKey.METADATA, 13, 9),
        (ApiKey.OFFSET_COMMIT, 10, 8),
        (ApiKey.OFFSET_FETCH, 10, 6),
        (ApiKey.FIND_COORDINATOR, 6, 3),
        (ApiKey.JOIN_GROUP, 9, 6),
        (ApiKey.HEARTBEAT, 4, 4),
        (ApiKey.LEAVE_GROUP, 5, 4),
        (ApiKey.SYNC_GROUP, 5, 4),
        (ApiKey.DESCRIBE_GROUPS, 6, 5),
        (ApiKey.LIST_GROUPS, 5, 3),
        (ApiKey.API_VERSIONS, 5, 3),
        (ApiKey.CREATE_TOPICS, 7, 5),
        (ApiKey.DELETE_TOPICS, 6, 4),
        (ApiKey.DELETE_RECORDS, 2, 2),
        (ApiKey.INIT_PRODUCER_ID, 6, 2),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 5, 3),
        (ApiKey.ADD_OFFSETS_TO_TXN, 4, 3),
        (ApiKey.END_TXN, 5, 3),
        (ApiKey.WRITE_TXN_MARKERS, 2, 1),
        (ApiKey.TXN_OFFSET_COMMIT, 6, 3),
        (ApiKey.DESCRIBE_CONFIGS, 4, 4),
        (ApiKey.ALTER_CONFIGS, 2, 2),
        (ApiKey.CREATE_PARTITIONS, 3, 2),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1),
        (ApiKey.DELETE_GROUPS, 3, 2),
        (ApiKey.OFFSET_DELETE, 0, 1),
        (ApiKey.DESCRIBE_CLUSTER, 2, 0),
        (ApiKey.DESCRIBE_PRODUCERS, 0, 0),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
        (ApiKey.LIST_TRANSACTIONS, 2, 0),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 0),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, 0),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    ],
)
def test_versions_reach_from_0_to_what_clients_use(key: ApiKey, highest: int, flexible_from: int) -> None:
    spec = registry.spec(key)
    assert (0, highest) == (spec.versions.lowest, spec.versions.highest)
    assert spec.flexible_from == registry.flexible_from(key) == flexible_from


def test_header_versions_follow_the_first_flexible_version() -> None:
    assert [
        1,
        1,
        2,
        2,
    ] == [registry.request_header_version(ApiKey.FETCH, version) for version in (0, 11, 12, 17)]
    assert [
        0,
        0,
        1,
        1,
    ] == [registry.response_header_version(ApiKey.FETCH, version) for version in (0, 11, 12, 17)]


def test_api_versions_answers_with_header_0_always() -> None:
    """A client cannot know the header before it knows what the broker speaks (KIP-511)."""
    assert {0} == {registry.response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)}
    assert 2 == registry.request_header_version(ApiKey.API_VERSIONS, 3)
    assert registry.UNKNOWN_VERSION_ANSWERS == {ApiKey.API_VERSIONS: 0}


def test_plain_numbers_are_keys_too() -> None:
    """The wire has numbers; handlers have the enum."""
    assert registry.spec(3) == registry.spec(ApiKey.METADATA)
    assert 2 == registry.request_header_version(3, 12)


def test_controlled_shutdown_alone_had_a_header_without_a_client_id() -> None:
    assert [
        0,
        1,
        1,
        2,
    ] == [registry.request_header_version(ApiKey.CONTROLLED_SHUTDOWN, version) for version in range(4)]


@pytest.mark.parametrize("key", [-1, 58, 999])
def test_an_api_that_is_not_declared_is_a_key_error(key: int) -> None:
    with pytest.raises(KeyError, match=str(key)):
        registry.spec(key)
    assert registry.flexible_from(key) > 32_767


def test_only_produce_without_acks_is_silent() -> None:
    assert not registry.expects_response(ProduceRequest(acks=0))
    for key in registry.declared_keys():
        assert (key != ApiKey.PRODUCE) == registry.expects_response(registry.spec(key).request_class())
    assert registry.expects_response(ProduceRequest(acks=-1))


def test_importing_the_protocol_imports_no_message() -> None:
    """A starting broker must not pay for seventeen modules before it has a request."""
    code = (
        "import sys; from kalda.protocol import client_connection, codec, headers, registry;"
        "print([name for name in sys.modules if name.startswith('kalda.protocol.messages.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()

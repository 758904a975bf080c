"""Every version of every admin API over a socket, encoded by our own protocol module.

Clients use few versions each; this uses them all, and the corners that no client sends.
"""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from kalda.common.errors import ErrorCode
from kalda.protocol import codec, registry
from kalda.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kalda.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kalda.protocol.messages.describe_cluster import DescribeClusterRequest
from kalda.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kalda.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from kalda.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from kalda.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.schema import Message

TopicName = Callable[[str], str]
TIMEOUT_MS = 15_000
TOPIC, BROKER = 2, 4


class Wire:
    """One connection that sends one request and reads its answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self._correlation_id = 0

    def ask(self, request: Message, version: int) -> Message:
        return self.ask_raw(request, version, codec.encode(request, version), answer_version=version)

    def ask_raw(self, request: Message, version: int, body: bytes, answer_version: int) -> Message:
        key = type(request).SCHEMA.api_key
        assert key is not None
        self._correlation_id += 1
        header = struct.pack(">hhih", key, version, self._correlation_id, 4) + b"wire"
        if registry.request_header_version(key, version) == 2:
            header += b"\0"
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        assert self._correlation_id == struct.unpack_from(">i", answer)[0]
        start = 4 + registry.response_header_version(key, answer_version)
        return codec.decode(registry.spec(key).response_class, answer_version, answer, start)

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            piece = self.socket.recv(size - len(read))
            assert piece, "the broker closed the connection"
            read += piece
        return read


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    connection = Wire(bootstrap)
    yield connection
    connection.socket.close()


def versions(request: type[Message]) -> range:
    lowest, highest = request.SCHEMA.versions
    return range(lowest, highest + 1)


def create(wire: Wire, name: str, version: int = 7, partitions: int = 1) -> CreateTopicsResponse:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version)
    assert isinstance(response, CreateTopicsResponse)
    assert [ErrorCode.NONE] == [result.error_code for result in response.topics]
    return response


def delete(wire: Wire, name: str, version: int) -> None:
    states, names = ([DeleteTopicState(name=name)], []) if version >= 6 else ([], [name])
    request = DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=TIMEOUT_MS)
    response = wire.ask(request, version)
    assert isinstance(response, DeleteTopicsResponse)
    assert [(name, ErrorCode.NONE)] == [(result.name, result.error_code) for result in response.responses]


def test_topics_are_created_and_deleted_in_every_version(wire: Wire, topic_name: TopicName) -> None:
    for version in versions(CreateTopicsRequest):
        name = topic_name(f"v{version}")
        create(wire, name, version)
        delete(wire, name, min(version, 6))


def test_metadata_in_every_version(wire: Wire, topic_name: TopicName) -> None:
    name = topic_name("metadata")
    topic_id = create(wire, name, partitions=2).topics[0].topic_id

    for version in versions(MetadataRequest):
        response = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
        assert isinstance(response, MetadataResponse)
        [topic] = response.topics
        assert (name, [0, 1]) == (topic.name, [partition.partition_index for partition in topic.partitions])
        assert version < 10 or topic_id == topic.topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    response = wire.ask(by_id, 12)
    assert isinstance(response, MetadataResponse)
    assert [name] == [topic.name for topic in response.topics]


def test_a_topic_unknown_to_the_metadata_is_created_in_every_version(
    wire: Wire, topic_name: TopicName
) -> None:
    for version in versions(MetadataRequest):
        name = topic_name(f"auto{version}")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        codes = []
        for _ in range(200):
            response = wire.ask(request, version)
            assert isinstance(response, MetadataResponse)
            codes.append(response.topics[0].error_code)
            if codes[-1] == ErrorCode.NONE:
                break
        assert (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE) == (codes[0], codes[-1])


def test_configs_in_every_version(wire: Wire, topic_name: TopicName) -> None:
    name = topic_name("configs")
    create(wire, name)
    for version in versions(AlterConfigsRequest):
        setting = AlterableConfig(name="retention.ms", value=str(1000 + version))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting])
        altered = wire.ask(AlterConfigsRequest(resources=[resource]), version)
        assert [ErrorCode.NONE] == [result.error_code for result in altered.responses]  # type: ignore[attr-defined]  # by API

    for version in versions(DescribeConfigsRequest):
        described = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        response = wire.ask(DescribeConfigsRequest(resources=[described]), version)
        assert isinstance(response, DescribeConfigsResponse)
        entries = {entry.name: entry for entry in response.results[0].configs}
        assert ("1002", 41) == (entries["retention.ms"].value, len(entries))


def test_a_setting_for_all_brokers_in_every_version(wire: Wire, topic_name: TopicName) -> None:
    """The broker without a name stands for all; librdkafka cannot say it."""
    name = topic_name("default")
    create(wire, name)

    def change(version: int, operation: int, value: str | None) -> None:
        setting = IncrementalConfig(name="log.index.interval.bytes", config_operation=operation, value=value)
        resource = IncrementalResource(resource_type=BROKER, resource_name="", configs=[setting])
        changed = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), version)
        assert [ErrorCode.NONE] == [result.error_code for result in changed.responses]  # type: ignore[attr-defined]  # by API

    def seen() -> tuple[str | None, int]:
        described = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["index.interval.bytes"]
        )
        response = wire.ask(DescribeConfigsRequest(resources=[described]), 4)
        assert isinstance(response, DescribeConfigsResponse)
        [entry] = response.results[0].configs
        return entry.value, entry.config_source

    for version in versions(IncrementalAlterConfigsRequest):
        change(version, 0, "1000")
        assert ("1000", 3) == seen()
        change(version, 1, None)
        assert ("4096", 5) == seen()


def test_growing_and_the_cluster_in_every_version(wire: Wire, topic_name: TopicName) -> None:
    name = topic_name("grow")
    create(wire, name)

    for version in versions(CreatePartitionsRequest):
        topic = CreatePartitionsTopic(name=name, count=2 + version, assignments=None)
        grown = wire.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), version)
        assert [ErrorCode.NONE] == [result.error_code for result in grown.results]  # type: ignore[attr-defined]  # by API
    for version in versions(DescribeClusterRequest):
        cluster = wire.ask(DescribeClusterRequest(), version)
        assert ErrorCode.NONE == cluster.error_code  # type: ignore[attr-defined]  # by API


def test_a_newer_client_learns_what_to_step_down_to(wire: Wire) -> None:
    """A version of ApiVersions from the future is answered in version 0, with the list (KIP-511)."""
    unknown = wire.ask_raw(ApiVersionsRequest(), 99, b"\x0bjunk of the future", answer_version=0)

    assert isinstance(unknown, ApiVersionsResponse)
    assert ErrorCode.UNSUPPORTED_VERSION == unknown.error_code
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in unknown.api_keys}
    assert (0, 5) == served[18]
    # The connection serves on.
    for version in versions(ApiVersionsRequest):
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        known = wire.ask(request, version)
        assert isinstance(known, ApiVersionsResponse)
        assert ErrorCode.NONE == known.error_code


def test_a_client_that_says_nonsense_about_itself_is_refused(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="has blank", client_software_version="1")

    response = wire.ask(request, 3)

    assert isinstance(response, ApiVersionsResponse)
    assert ErrorCode.INVALID_REQUEST == response.error_code

"""What we write, an independent codec reads, and writes back as the same bytes.

kafka-python has its own schemas and its own codec; a misunderstanding that both of our codecs share would
show here. Its schemas begin at the versions that Kafka 4 still has, and it knows none of what a controller of
the ZooKeeper era sends to brokers.
"""

from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import pytest
from hypothesis import given, settings

from kalda.protocol import codec
from kalda.protocol.schema import Message, parse_versions
from tests.property.protocol.declared_messages import MESSAGE_VERSIONS, filled, structs

_PACKAGES = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)


def peer_class(message_class: type[Message]) -> Any:
    """The peer's class of the same name, or None if it has none."""
    return next(
        (
            vars(package)[message_class.__name__]
            for package in _PACKAGES
            if message_class.__name__ in vars(package)
        ),
        None,
    )


COMMON_VERSIONS = tuple(
    pytest.param(message_class, version, id=f"{message_class.__name__}-v{version}")
    for message_class, version in MESSAGE_VERSIONS
    if peer_class(message_class) is not None
    and parse_versions(peer_class(message_class).json["validVersions"]).includes(version)
)


def through_peer(message: Message, version: int) -> bytes:
    peer = peer_class(type(message))
    if message.SCHEMA.api_key is None:
        # What lies inside the bytes of others has its version in front of it.
        prefix = version.to_bytes(2, "big")
        return bytes(peer.decode(prefix + codec.encode(message, version)).encode()).removeprefix(prefix)
    read = peer.decode(codec.encode(message, version), version=version)
    read._header = None  # a message that was read without a header cannot be written otherwise
    return bytes(read.encode(version=version))


def is_read_as_version_0(message: Message) -> bool:
    """kafka-python reads every ApiVersions answer that has an error in version 0."""
    return type(message).__name__ == "ApiVersionsResponse" and getattr(message, "error_code", 0) != 0


@pytest.mark.parametrize(("message_class", "version"), COMMON_VERSIONS)
def test_kafka_python_reads_and_writes_the_same_bytes(message_class: type[Message], version: int) -> None:
    sample = filled(message_class, version)
    if is_read_as_version_0(sample):
        sample.error_code = 0  # type: ignore[attr-defined]  # the one class that has it
    assert through_peer(sample, version) == codec.encode(sample, version)

    @settings(max_examples=4, deadline=None, database=None)
    @given(structs(message_class, version))
    def check(message: Message) -> None:
        if not is_read_as_version_0(message):
            assert through_peer(message, version) == codec.encode(message, version)

    check()

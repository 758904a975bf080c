"""What a version cannot carry is refused, or dropped where the declaration allows it."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kalda.protocol import codec
from kalda.protocol.codec_reference import encode_reference
from kalda.protocol.messages.fetch import FetchRequest, ReplicaState
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kalda.protocol.messages.produce import ProduceRequest
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import FixedKind, Kind, Message, Struct
from tests.property.protocol.declared_messages import (
    MESSAGE_VERSION_IDS,
    MESSAGE_VERSIONS,
    filled,
    sample_value,
)

every_message_version = pytest.mark.parametrize(
    ("message_class", "version"), MESSAGE_VERSIONS, ids=MESSAGE_VERSION_IDS
)
both_encoders = pytest.mark.parametrize("encode", [codec.encode, encode_reference])


def carried_structs(value: object, version: int) -> Iterator[Struct]:
    """The value itself and every struct below it that the version carries."""
    if isinstance(value, list):
        for item in value:
            yield from carried_structs(item, version)
    elif isinstance(value, Struct):
        yield value
        for field in value.FIELDS:
            if field.versions.includes(version):
                yield from carried_structs(getattr(value, field.name), version)


@every_message_version
@both_encoders
def test_a_field_outside_its_versions_is_refused_unless_ignorable(
    message_class: type[Message], version: int, encode: Callable[[Message, int], bytes]
) -> None:
    """Silently dropping what a caller set hides bugs; only a declared `ignorable` allows it."""
    message = filled(message_class, version)
    expected = encode(message, version)
    for struct in list(carried_structs(message, version)):
        for field in struct.FIELDS:
            if field.versions.includes(version):
                continue
            setattr(struct, field.name, sample_value(field, field.versions.lowest, count(50)))
            if field.ignorable:
                assert expected == encode(message, version)
            else:
                with pytest.raises(MessageError, match=field.name):
                    encode(message, version)
            setattr(struct, field.name, field.default())


@every_message_version
@both_encoders
def test_none_is_refused_where_the_version_has_no_null(
    message_class: type[Message], version: int, encode: Callable[[Message, int], bytes]
) -> None:
    """A null that the peer cannot read must not leave the process."""
    message = filled(message_class, version)
    for struct in list(carried_structs(message, version)):
        for field in struct.FIELDS:
            carried = field.versions.includes(version) and not field.nullable.includes(version)
            if not carried or (isinstance(field.kind, FixedKind) and field.kind.name == "bool"):
                continue
            value: Any = getattr(struct, field.name)
            setattr(struct, field.name, None)
            with pytest.raises(MessageError):
                encode(message, version)
            setattr(struct, field.name, value)


@both_encoders
def test_a_struct_that_is_not_carried_is_refused_by_what_it_holds(
    encode: Callable[[Message, int], bytes],
) -> None:
    """Below v15 a follower's state has no place in a fetch request; the default state is no state."""
    encode(FetchRequest(replica_state=ReplicaState()), 14)
    with pytest.raises(MessageError, match="replica_state"):
        encode(FetchRequest(replica_state=ReplicaState(replica_id=3)), 14)


@both_encoders
def test_a_null_topic_name_needs_the_version_that_has_it(encode: Callable[[Message, int], bytes]) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    with pytest.raises(MessageError):
        encode(request, 9)
    assert encode(request, 12)


@both_encoders
@pytest.mark.parametrize("version", [-1, 14, 99])
def test_a_version_that_does_not_exist_is_our_error(
    version: int, encode: Callable[[Message, int], bytes]
) -> None:
    with pytest.raises(MessageError, match="versions 0-13"):
        encode(ProduceRequest(), version)


@both_encoders
@pytest.mark.parametrize("version", [8, 9])
def test_values_out_of_range_are_our_error(version: int, encode: Callable[[Message, int], bytes]) -> None:
    """Integers have the width of their kind and strings at most 32,767 bytes, compact or not."""
    for request in (
        ProduceRequest(acks=40_000),
        ProduceRequest(transactional_id="x" * 32_768),
        ProduceRequest(transactional_id="\ud800"),
    ):
        with pytest.raises(MessageError):
            encode(request, version)
    assert encode(ProduceRequest(transactional_id="x" * 32_767), version)


def test_every_declared_default_is_one_that_some_version_can_carry() -> None:
    """A message made without arguments can be written in each of its versions."""
    for message_class, version in MESSAGE_VERSIONS:
        default = message_class()
        assert default == codec.decode(message_class, version, codec.encode(default, version))
        for field in message_class.FIELDS:
            if isinstance(field.kind, Kind) and field.default() is None:
                assert field.nullable.lowest <= field.nullable.highest

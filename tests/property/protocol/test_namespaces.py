"""The translation of names for all messages and versions: nothing is lost, and the frames agree with it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol import codec, registry
from kalda.protocol.framing import frame
from kalda.protocol.headers import response_header
from kalda.protocol.messages.fetch import FetchResponse
from kalda.protocol.messages.share_fetch import ShareFetchResponse
from kalda.protocol.namespaces import frames, message_plan
from kalda.protocol.namespaces.kinds import mask_id
from kalda.protocol.namespaces.names import REFUSED
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.schema import Message, Struct
from tests.property.protocol.declared_messages import structs

SPACE = Namespace("7")

WITHOUT_INVERSE = {
    # What a filter means is translated, not its text; tests of the kinds have these.
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
}

API_VERSIONS = [
    (key, version)
    for key in registry.declared_keys()
    if key not in REFUSED
    for version in range(registry.spec(key).versions.lowest, registry.spec(key).versions.highest + 1)
]
IDS = [f"{key.name}-v{version}" for key, version in API_VERSIONS]


FEW = settings(max_examples=8, deadline=None, database=None)


class Topics:
    """A cluster in which every id is that of a topic of another namespace, or none is."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._name


def drawn(data: st.DataObject, message_class: type[Message], version: int) -> Any:
    """Draw a message in which all ids are random ones, as those of topics are."""

    def change(struct: Any) -> None:
        for field in struct.FIELDS:
            value = getattr(struct, field.name)
            if isinstance(value, UUID):
                setattr(struct, field.name, UUID(bytes=value.bytes, version=4))
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, Struct):
                    change(each)

    message = data.draw(structs(message_class, version))
    change(message)
    return message


def copied(message: Message, version: int) -> Any:
    """Return an equal message that shares nothing."""
    return codec.decode(type(message), version, codec.encode(message, version))


@pytest.mark.parametrize(
    ("key", "version"), [each for each in API_VERSIONS if each[0] not in WITHOUT_INVERSE]
)
@FEW
@given(data=st.data())
def test_what_is_stored_becomes_plain_again(key: ApiKey, version: int, data: st.DataObject) -> None:
    """A client reads its own names, and every version can carry what the translation makes of a message."""
    api = registry.spec(key)
    for is_request, message_class in ((True, api.request_class), (False, api.response_class)):
        message = drawn(data, message_class, version)
        stored = copied(message, version)
        steps = message_plan._steps(key, is_request, version)
        message_plan._store(SPACE, Topics(), stored, steps)
        stored = copied(stored, version)
        assert message_plan._plain(SPACE, Topics(), stored, steps)
        assert codec.encode(message, version) == codec.encode(stored, version)


RECORDS_VERSIONS = [each for each in API_VERSIONS if each[0] in (ApiKey.PRODUCE, ApiKey.FETCH)]


@pytest.mark.parametrize(("key", "version"), RECORDS_VERSIONS)
@FEW
@given(data=st.data())
def test_frames_of_requests_are_translated_as_messages_are(
    key: ApiKey, version: int, data: st.DataObject
) -> None:
    """Produce and Fetch are not decoded; a name that is missed there is another topic."""
    topics = Topics(data.draw(st.sampled_from((None, "ns-8-t", "ns-7-t"))))
    request = drawn(data, registry.spec(key).request_class, version)
    body = bytearray(b"header" + codec.encode(request, version))
    expected = copied(request, version)
    message_plan.to_stored(SPACE, topics, expected, version)
    rewrite = frames.produce_request if key is ApiKey.PRODUCE else frames.fetch_request

    def is_foreign(raw: bytes) -> bool:
        name = topics.topic_name(UUID(bytes=raw))
        return name is not None and not SPACE.has(name)

    found = rewrite(SPACE, is_foreign, memoryview(body), len(b"header"), version)
    assert b"header" + codec.encode(expected, version) == bytes(found)


@pytest.mark.parametrize(
    ("key", "version"), [*RECORDS_VERSIONS, *(each for each in API_VERSIONS if each[0] is ApiKey.SHARE_FETCH)]
)
@pytest.mark.parametrize("is_split", [False, True])
@FEW
@given(data=st.data())
def test_frames_of_responses_are_translated_as_messages_are(
    key: ApiKey, version: int, is_split: bool, data: st.DataObject
) -> None:
    """Records between the names may be in a file; they stay what they are."""
    response = drawn(data, registry.spec(key).response_class, version)
    message_plan._store(SPACE, Topics(), response, message_plan._steps(key, False, version))
    for topic in response.responses:
        has_ids = version >= frames.NAMES_BELOW or key is ApiKey.SHARE_FETCH
        if has_ids and data.draw(st.booleans()):
            topic.topic_id = UUID(bytes=mask_id(topic.topic_id.bytes))
    expected = copied(response, version)
    message_plan.to_plain(SPACE, Topics(), expected, version)
    head = response_header(5, registry.response_header_version(key, version))
    whole = frame([head, codec.encode(response, version)])
    if key is ApiKey.PRODUCE:
        found = bytes(frames.produce_response(SPACE, memoryview(bytearray(whole)), version))
    else:
        chunks = split(response, whole, head, version) if is_split else [whole]
        if key is ApiKey.FETCH:
            translated = frames.fetch_response(SPACE, chunks, version)
        else:
            translated = frames.share_fetch_response(SPACE, chunks)
        found = b"".join(
            each.data if isinstance(each, FileRecords) else bytes_of(each) for each in translated
        )
    assert frame([head, codec.encode(expected, version)]) == found


def bytes_of(chunk: frames.Chunk) -> bytes:
    assert isinstance(chunk, (bytes, bytearray, memoryview)), chunk
    return bytes(chunk)


class FileRecords:
    """Records that are not in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def split(response: FetchResponse | ShareFetchResponse, whole: bytes, head: bytes, version: int) -> list[Any]:
    """Return the chunks of a response whose records are in a file, as the broker sends them."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records:
                partition.records = FileRecords(bytes_of(partition.records))
    chunks = codec.encode_chunks(response, version)
    first = chunks[0] if chunks and isinstance(chunks[0], bytes) else b""
    return [whole[:4] + head + first, *chunks[1 if first else 0 :]]

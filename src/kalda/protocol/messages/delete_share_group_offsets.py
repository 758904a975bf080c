"""DeleteShareGroupOffsets (key 92): delete the offsets of topics in an empty share group (KIP-932)."""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class RequestTopic(Struct):
    """One topic."""

    topic_name: str = wire(STRING, "0+")


class DeleteShareGroupOffsetsRequest(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    """Names topics."""

    group_id: str = wire(STRING, "0+")
    topics: list[RequestTopic] = wire(array(RequestTopic), "0+")


class ResponseTopic(Struct):
    """The outcome for one topic."""

    topic_name: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(
    Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    """The outcome for each topic."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    responses: list[ResponseTopic] = wire(array(ResponseTopic), "0+")

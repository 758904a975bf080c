"""DeleteTopics (key 20): delete topics by name or by id.

v1 adds the throttle time. v2 throttles after the response. v3 may answer TOPIC_DELETION_DISABLED. v4 is
flexible. v5 adds error messages and may answer THROTTLING_QUOTA_EXCEEDED (KIP-599). v6 replaces the names
by a list of structs with name or id (KIP-516).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class DeleteTopicState(Struct):
    """One topic; by id when the name is None."""

    name: str | None = wire(STRING, "6+", nullable="6+", default=None)
    topic_id: UUID = wire(UUID_KIND, "6+")


class DeleteTopicsRequest(Message, api_key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    """Topics to delete: `topic_names` up to v5, `topics` from v6."""

    topics: list[DeleteTopicState] = wire(array(DeleteTopicState), "6+")
    topic_names: list[str] = wire(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = wire(INT32, "0+")


class DeletableTopicResult(Struct):
    """One topic; the name is None when it was asked for by an id that is unknown."""

    name: str | None = wire(STRING, "0+", nullable="6+")
    topic_id: UUID = wire(UUID_KIND, "6+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = wire(array(DeletableTopicResult), "0+")

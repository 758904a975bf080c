"""The client classes of Kafka 0.7 to 0.10, with the names that their documents and programs use.

They are thin adapters over the connections of `kalda.clients`, for programs and knowledge of that time. New
programs use `kalda.Producer`, `kalda.Consumer` and `kalda.Admin`.
"""

from kalda.clients.legacy.message_set import ByteBufferMessageSet, Message, MessageAndOffset
from kalda.clients.legacy.simple_consumer import (
    FetchRequest,
    MultiFetchResponse,
    OffsetRequest,
    SimpleConsumer,
)

__all__ = [
    "ByteBufferMessageSet",
    "FetchRequest",
    "Message",
    "MessageAndOffset",
    "MultiFetchResponse",
    "OffsetRequest",
    "SimpleConsumer",
]

"""The client classes of Kafka 0.7 to 0.10, with the names that their documents and programs use.

They are thin adapters over the connections of `kalda.clients`, for programs and knowledge of that time. New
programs use `kalda.Producer`, `kalda.Consumer` and `kalda.Admin`.
"""

from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.consumer_connector import Consumer, ConsumerConnector
from kalda.clients.legacy.consumer.decoder import DefaultDecoder, StringDecoder
from kalda.clients.legacy.consumer.kafka_stream import ConsumerTimeoutError, KafkaStream, MessageAndMetadata
from kalda.clients.legacy.consumer.rebalancer import ConsumerRebalanceFailedError
from kalda.clients.legacy.consumer.topic_count import Blacklist, TopicFilter, Whitelist
from kalda.clients.legacy.message_set import ByteBufferMessageSet, Message, MessageAndOffset
from kalda.clients.legacy.producer.encoder import DefaultEncoder, Encoder, NullEncoder, StringEncoder
from kalda.clients.legacy.producer.handlers import CallbackHandler, EventHandler, QueueItem
from kalda.clients.legacy.producer.partitioner import DefaultPartitioner, Partitioner
from kalda.clients.legacy.producer.producer import Producer
from kalda.clients.legacy.producer.producer_config import ProducerConfig
from kalda.clients.legacy.producer.producer_data import ProducerData
from kalda.clients.legacy.producer.producer_errors import (
    FailedToSendMessageError,
    InvalidPartitionError,
    MessageSizeTooLargeError,
    NoBrokersForPartitionError,
    QueueClosedError,
    QueueFullError,
)
from kalda.clients.legacy.producer.sync_producer import ProducerRequest, SyncProducer
from kalda.clients.legacy.simple_consumer import (
    FetchRequest,
    MultiFetchResponse,
    OffsetRequest,
    SimpleConsumer,
)

__all__ = [
    "Blacklist",
    "ByteBufferMessageSet",
    "CallbackHandler",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerRebalanceFailedError",
    "ConsumerTimeoutError",
    "DefaultDecoder",
    "DefaultEncoder",
    "DefaultPartitioner",
    "Encoder",
    "EventHandler",
    "FailedToSendMessageError",
    "FetchRequest",
    "InvalidPartitionError",
    "KafkaStream",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSizeTooLargeError",
    "MultiFetchResponse",
    "NoBrokersForPartitionError",
    "NullEncoder",
    "OffsetRequest",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "ProducerRequest",
    "QueueClosedError",
    "QueueFullError",
    "QueueItem",
    "SimpleConsumer",
    "StringDecoder",
    "StringEncoder",
    "SyncProducer",
    "TopicFilter",
    "Whitelist",
]

"""Puts the parts of a producer together, for `Producer` and `AsyncProducer` alike.

It has what both classes do in the same way: the path of a record, and the close. A record may have to wait
for metadata and for memory; `send` yields these waits, and the two classes do them (`send_waits`).

Every record pays for `try_send`, so work that is the same for many records is done elsewhere.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kalda.clients.argument_checks import (
    a_type,
    check_callback,
    check_headers,
    check_interceptors,
    check_object,
)
from kalda.clients.errors import (
    BufferExhaustedError,
    IllegalStateError,
    RecordTooLargeError,
)
from kalda.clients.metadata import ClusterMetadata, Metadata, PartitionMetadata
from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.network_metrics import NetworkMetrics, add_loop_thread
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import SampleConfig
from kalda.clients.network_client import NetworkClient
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.partitioner import PartitionChoice, Partitioner, as_partitioner
from kalda.clients.producer.produce_results import ProduceResults
from kalda.clients.producer.producer_batch import record_size_max
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.producer.producer_interceptor import ProducerInterceptor, ProducerInterceptors
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_accumulator import AccumulatorSettings, RecordAccumulator
from kalda.clients.producer.record_future import BatchResult, Delivery, RecordFuture
from kalda.clients.producer.record_metadata import NO_OFFSET, RecordMetadata
from kalda.clients.producer.send_waits import BEFORE_BATCH, RunBlocking, Steps, W, WaitForMetadata
from kalda.clients.producer.sender import Sender, SenderSettings
from kalda.clients.producer.serializers import (
    Serialize,
    Serializer,
    SerializerFunction,
    as_serialize,
    plain_bytes,
)
from kalda.clients.producer.topic_wait import TopicWait
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.serde import LoadRequiredError
from kalda.clients.telemetry.telemetry_reporter import CLOSE_TIMEOUT_S as TELEMETRY_CLOSE_TIMEOUT_S
from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter
from kalda.common.errors import ErrorCode
from kalda.common.extras import missing_package
from kalda.common.murmur2 import partition_for_key
from kalda.common.types import UUID, TopicPartition
from kalda.records.batch import HEADER_SIZE
from kalda.records.record import Header
from kalda.runtime.clock import Clock
from kalda.runtime.runtime import Runtime
from kalda.runtime.system import clock as system_clock
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.runtime import client_runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.clients.producer.arrow_send import ArrowChunk, ArrowRows

T = TypeVar("T")

NO_HEADERS: Final[tuple[Header, ...]] = ()
_is_callable: Final[Callable[[object], bool]] = callable
"""For arguments that the type checker takes for callable already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerObjects:
    """The options of a producer that are Python objects."""

    key_serializer: Serializer[Any] | SerializerFunction | None = None
    value_serializer: Serializer[Any] | SerializerFunction | None = None
    partitioner: Partitioner | PartitionChoice | None = None
    interceptors: Sequence[ProducerInterceptor] = ()

    def __post_init__(self) -> None:
        check_interceptors(self.interceptors, ("on_send", "on_acknowledgement", "close"))
        if self.partitioner is not None and (
            isinstance(self.partitioner, type) or not callable(self.partitioner)
        ):
            check_object("partitioner", self.partitioner, ("partition",))


@dataclass(slots=True)
class PendingRecord:
    """A serialised record on its way to a batch."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    partition: int | None
    """None for the topic's sticky partition."""
    timestamp_ms: int
    on_delivery: Delivery | None


class ProducerCore:
    """The parts of one producer.

    Args:
        config: The settings.
        objects: The options that are Python objects.
        runtime: What the producer knows of its machine; None is this machine.
    """

    def __init__(
        self, config: ProducerConfig, objects: ProducerObjects, runtime: Runtime | None = None
    ) -> None:
        self.config: Final = config
        runtime = client_runtime() if runtime is None else runtime
        self.clock: Final[Clock] = runtime.clock
        if not config.client_id:
            name = config.transactional_id or str(runtime.client_numbers.next("producer"))
            config = config.replaced(client_id=f"producer-{name}")
        self.metadata: Final = Metadata(
            allow_auto_topic_creation=True, topic_idle_seconds=config.metadata_max_idle_ms / 1000
        )
        self.metrics: Final = ClientMetrics(
            {"client-id": config.client_id},
            SampleConfig(config.metrics_sample_window_ms / 1000, config.metrics_num_samples),
            self.clock,
        )
        add_client_info(self.metrics)
        self.producer_metrics: Final = ProducerMetrics(self.metrics)
        self.client: Final = NetworkClient(
            config, self.metadata, runtime, NetworkMetrics(self.metrics, "producer")
        )
        self.topics: Final = TopicWait(self.client, self.metadata, self.producer_metrics, config)
        self.telemetry: Final = _telemetry(config, self.client, self.metrics)
        # The module where it is the system's clock: a method would cost every record a frame, and freezegun
        # replaces the function there.
        self._wall: Final = system_clock if isinstance(self.clock, SystemClock) else self.clock
        self._metadata_at = self.clock.monotonic()
        self.transactions: Final = _transactions(config)
        self.accumulator: Final = RecordAccumulator(
            _accumulator_settings(config),
            self.client.retry_backoff,
            runtime.random.randrange,
            self.transactions,
        )
        self.results: Final = ProduceResults(
            self.accumulator,
            self.metadata,
            self.transactions,
            retries=config.retries,
            keeps_order=config.max_in_flight_requests_per_connection == 1,
            metrics=self.producer_metrics,
        )
        self.sender: Final = Sender(
            _sender_settings(config),
            self.client,
            self.accumulator,
            self.results,
            self.transactions,
            self.producer_metrics,
        )
        self._watch()
        self.max_block_s: Final = config.max_block_ms / 1000
        self.interceptors: Final = ProducerInterceptors(objects.interceptors)
        self._key_serialize: Final[Serialize | None] = as_serialize(objects.key_serializer, "key")
        self._value_serialize: Final[Serialize | None] = as_serialize(objects.value_serializer, "value")
        self._partitioner: Final = (
            None if objects.partitioner is None else as_partitioner(objects.partitioner)
        )
        self._uses_keys: Final = not config.partitioner_ignore_keys
        self._is_plain: Final = (
            self._key_serialize is None
            and self._value_serialize is None
            and self._partitioner is None
            and self._uses_keys
            and not self.interceptors
            and config.transactional_id is None
        )
        self._partition_counts: dict[str, int] = {}
        self._try_append: Final = self.accumulator.try_append

    def _watch(self) -> None:
        """Register the metrics that are read from the parts."""
        pool, sender = self.accumulator.pool, self.sender
        self.producer_metrics.watch_buffer(pool.total, lambda: pool.available, lambda: pool.waiter_count)
        self.producer_metrics.watch_sender(
            lambda: sender.in_flight_count, lambda: self.clock.monotonic() - self._metadata_at
        )

    def start(self) -> None:
        """Begin to connect and to send; needs the running loop."""
        self.metadata.on_update.append(self._on_metadata)
        self.client.start()
        self.sender.start()
        add_loop_thread(self.metrics, "producer-metrics")
        if self.telemetry is not None:
            self.telemetry.start()

    # One record: any thread.

    def try_send(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: Delivery | None,
    ) -> RecordFuture | None:
        """Append a record of the usual form to an open batch; None for all other cases."""
        if not self._is_plain or not (value is None or type(value) is bytes):
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            if partition is None:
                partition_count = self._partition_counts.get(topic)
                if partition_count is None:
                    return None
                partition = partition_for_key(key, partition_count)
        if partition is not None and type(partition) is not int:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._wall.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int:
            return None
        if timestamp_ms < 0:
            # Also where the machine's clock is before 1970.
            return None
        if on_delivery is not None and not _is_callable(on_delivery):
            return None
        try:
            return self._try_append(topic, partition, key, value, timestamp_ms, headers, on_delivery)
        except (TypeError, ValueError, AttributeError):
            # Headers of another shape, most likely; the longer path names what is wrong.
            return None

    def try_begin_batch(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: Delivery | None,
    ) -> RecordFuture | None:
        """Append a record, for which `try_send` found no open batch, to a new one; None as there."""
        if not self._is_plain or headers or not (value is None or type(value) is bytes):
            # The longer path checks headers.
            return None
        if on_delivery is not None and not _is_callable(on_delivery):
            return None
        partition_count = self._partition_counts.get(topic)
        transactions = self.transactions
        if partition_count is None or (transactions is not None and transactions.last_error is not None):
            return None
        if partition is not None and not (type(partition) is int and 0 <= partition < partition_count):
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            if partition is None:
                partition = partition_for_key(key, partition_count)
        if timestamp_ms is None:
            timestamp_ms = self.clock.time_ms()
        elif type(timestamp_ms) is not int or timestamp_ms < 0:
            return None
        now = self.clock.monotonic()
        appended = self.accumulator.try_append_to_new(
            topic,
            partition,
            key,
            value,
            timestamp_ms,
            headers,
            on_delivery,
            now=now,
            snapshot=self.metadata.snapshot,
        )
        if appended is None:
            return None
        self.metadata.add_topic(topic, now)
        if appended.is_sendable:
            self.sender.batch_begun()
        return appended.future

    def send(
        self, record: ProducerRecord, on_delivery: Delivery | None, new_waiter: Callable[[int], W]
    ) -> Steps[W, RecordFuture]:
        """Take any record to a batch; yield what it has to wait for.

        Raises:
            SerializationError, RecordTooLargeError, ValueError: the record cannot be sent.
            BufferExhaustedError: the caller went on without memory.
            ClientError: the state of the transaction does not allow a record.
        """
        try:
            record = self._intercept(record)
            if not self.topics.is_known(record.topic, record.partition):
                yield WaitForMetadata(record.topic, record.partition)
            try:
                pending = self._encode(record, on_delivery)
            except LoadRequiredError as required:
                pending = yield from self._encode_after(required, record, on_delivery)
            future = self._append_to_open_batch(pending)
            if future is None:
                yield BEFORE_BATCH
                size = self.accumulator.memory_for(pending.key, pending.value, pending.headers)
                future = yield from self.reserved(size, new_waiter, partial(self._append, pending))
            return future
        except Exception as error:
            self._refused(record, error)
            raise

    def _encode_after(
        self, required: LoadRequiredError, record: ProducerRecord, on_delivery: Delivery | None
    ) -> Steps[W, PendingRecord]:
        """Encode a record after its serializers have loaded the schemas they lack."""
        while True:
            yield RunBlocking(required.load)
            try:
                return self._encode(record, on_delivery)
            except LoadRequiredError as error:
                required = error

    def reserved(
        self, size: int, new_waiter: Callable[[int], W], append: Callable[[W], T], *, is_slow: bool = False
    ) -> Steps[W, T]:
        """Call `append` with memory for a new batch; callers get memory in their order.

        What `append` does not use when it raises is free again. A slow one is yielded as a step.
        """
        waiter = new_waiter(size)
        try:
            if not self.accumulator.reserve(waiter):
                self.sender.wakeup()
                with self.producer_metrics.waiting_for_buffer():
                    yield waiter
                if not self.accumulator.stop_waiting(waiter):
                    raise self._buffer_exhausted(size)
            if is_slow:
                done: T = yield RunBlocking(partial(append, waiter))
                return done
            return append(waiter)
        except BaseException:
            self.accumulator.cancel_reservation(waiter)
            raise

    def _intercept(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after the interceptors.

        Raises:
            ValueError: the timestamp, the partition or the headers are not allowed.
        """
        _check_record(record)
        if self.interceptors:
            record = self.interceptors.on_send(record)
        _check_numbers(record.timestamp_ms, record.partition)
        if record.headers:
            check_headers(record.headers)
        if record.timestamp_ms is not None and record.timestamp_ms < 0:
            raise ValueError(
                f"timestamp_ms={record.timestamp_ms} is negative; leave it out for the present time"
            )
        if record.partition is not None and record.partition < 0:
            raise ValueError(
                f"partition={record.partition} is negative; leave it out for the partitioner's choice"
            )
        return record

    def _encode(self, record: ProducerRecord, on_delivery: Delivery | None) -> PendingRecord:
        """Serialise a record and choose its partition; the metadata must be there.

        Raises:
            SerializationError: the key or value is not bytes and no serializer makes it bytes.
            RecordTooLargeError: the record is above `max.request.size` or `buffer.memory`.
            ClientError: the state of the transaction does not allow a record.
        """
        if self.transactions is not None:
            self.transactions.check_ready_to_send()
        topic, headers = record.topic, record.headers
        key = (
            plain_bytes(record.key, "key", topic)
            if self._key_serialize is None
            else self._key_serialize(topic, headers, record.key)
        )
        value = (
            plain_bytes(record.value, "value", topic)
            if self._value_serialize is None
            else self._value_serialize(topic, headers, record.value)
        )
        self._check_size(topic, HEADER_SIZE + record_size_max(key, value, headers))
        partition = record.partition
        if partition is None:
            partition = self._choose_partition(self.metadata.snapshot, topic, key, value)
        now = self.clock.monotonic()
        # Each batch makes its topic known as used; else its metadata would be dropped as idle.
        self.metadata.add_topic(topic, now)
        timestamp_ms = self.clock.time_ms() if record.timestamp_ms is None else record.timestamp_ms
        deliver = self._with_interceptors(on_delivery)
        return PendingRecord(topic, key, value, headers, partition, timestamp_ms, deliver)

    def _append(self, record: PendingRecord, reserved: MemoryWaiter) -> RecordFuture:
        """Append an encoded record in reserved memory, and wake the sender where it has to look."""
        appended = self.accumulator.append(
            record.topic,
            record.partition,
            record.key,
            record.value,
            record.timestamp_ms,
            record.headers,
            record.on_delivery,
            reserved=reserved,
            now=self.clock.monotonic(),
            snapshot=self.metadata.snapshot,
        )
        self._add_to_transaction(appended.future.topic_partition)
        if appended.is_sendable:
            self.sender.wakeup()
        return appended.future

    def _append_to_open_batch(self, record: PendingRecord) -> RecordFuture | None:
        """Append an encoded record if an open batch has room; None if memory has to be reserved for it."""
        future = self._try_append(
            record.topic,
            record.partition,
            record.key,
            record.value,
            record.timestamp_ms,
            record.headers,
            record.on_delivery,
        )
        if future is not None:
            self._add_to_transaction(future.topic_partition)
        return future

    def _with_interceptors(self, on_delivery: Delivery | None) -> Delivery | None:
        """Return a callback that runs the interceptors before `on_delivery`.

        Raises:
            ValueError: `on_delivery` cannot be called.
        """
        check_callback("on_delivery", on_delivery)
        interceptors = self.interceptors
        if not interceptors:
            return on_delivery

        def deliver(metadata: RecordMetadata, error: Exception | None) -> None:
            interceptors.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return deliver

    def _refused(self, record: ProducerRecord, error: Exception) -> None:
        """Notify the interceptors of a record for which `send` raises an error."""
        if self.interceptors and isinstance(record, ProducerRecord):
            partition = -1 if record.partition is None else record.partition
            self.interceptors.on_acknowledgement(
                RecordMetadata(record.topic, partition, NO_OFFSET, record.timestamp_ms or -1, -1, -1), error
            )

    def _buffer_exhausted(self, size: int) -> BufferExhaustedError:
        """Return the error of a caller that got no memory in time."""
        pool = self.accumulator.pool
        self.producer_metrics.buffer_exhausted()
        return BufferExhaustedError(
            f"no {size} bytes of `buffer.memory`={pool.total} were free within `max.block.ms`="
            f"{self.config.max_block_ms}; send slower, raise one of the two, or see why brokers take so long"
        )

    # Arrow: one record batch.

    def arrow_rows(self, topic: str, batch: "pa.RecordBatch") -> "Steps[W, ArrowRows]":
        """Check the rows of an Arrow batch; yield if the metadata is not there.

        Raises:
            ValueError: a column is missing, unknown or of another type.
            RecordTooLargeError: a row is above `max.request.size` or `buffer.memory`.
            ClientError: the state of the transaction does not allow records.
        """
        try:
            from kalda.clients.producer.arrow_send import ArrowRows
        except ModuleNotFoundError as error:
            raise missing_package("send_arrow", "arrow", error) from error

        if self.transactions is not None:
            self.transactions.check_ready_to_send()
        rows = ArrowRows.read(batch, self.clock.time_ms())
        self._check_size(topic, rows.largest_row)
        partition = rows.partition_max if rows.partition_max >= 0 else None
        if not self.topics.is_known(topic, partition):
            yield WaitForMetadata(topic, partition)
        return rows

    def arrow_chunks(self, topic: str, rows: "ArrowRows") -> "Iterator[ArrowChunk]":
        """Return the rows as future batches; the metadata must be there."""
        from kalda.clients.producer.arrow_send import CHUNK_BYTES_MAX

        settings = self.accumulator.settings
        chunk_bytes = min(
            settings.max_request_size, settings.buffer_memory, max(CHUNK_BYTES_MAX, settings.batch_size)
        )
        snapshot = self.metadata.snapshot
        self.metadata.add_topic(topic, self.clock.monotonic())
        return rows.chunks(
            topic,
            len(snapshot.topics[topic].partitions),
            self._available(snapshot, topic),
            self._partitioner,
            uses_keys=self._uses_keys,
            chunk_bytes=chunk_bytes - HEADER_SIZE,
        )

    def append_arrow(
        self, topic: str, chunk: "ArrowChunk", new_waiter: Callable[[int], W]
    ) -> Steps[W, tuple[BatchResult, int]]:
        """Encode and append rows, yield what they have to wait for; return their result and their number."""
        append = partial(self._append_arrow, topic, chunk)
        return self.reserved(chunk.size_bound, new_waiter, append, is_slow=True)

    def _append_arrow(
        self, topic: str, chunk: "ArrowChunk", reserved: MemoryWaiter
    ) -> tuple[BatchResult, int]:
        settings = self.accumulator.settings
        encoded = chunk.encode(settings.compression, settings.compression_level)
        result = self.accumulator.append_encoded(
            topic,
            chunk.partition,
            encoded,
            chunk.record_count,
            reserved=reserved,
            now=self.clock.monotonic(),
            snapshot=self.metadata.snapshot,
        )
        self._add_to_transaction(TopicPartition(result.topic, result.partition))
        self.sender.wakeup()
        return result, chunk.record_count

    # Topics and the end.

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the partitions of a topic in order; raises as `TopicWait.wait_known`."""
        await self.topics.wait_known(topic, None, self.max_block_s)
        partitions = self.metadata.snapshot.topics[topic].partitions
        return [partitions[number] for number in sorted(partitions)]

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id that the cluster assigned for metrics; raises as `TelemetryReporter` does."""
        if self.telemetry is None:
            raise IllegalStateError("client_instance_id needs `enable.metrics.push`=true")
        return await self.telemetry.client_instance_id(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Send buffered records for up to `timeout_s` seconds, abort an open transaction, and end all tasks.

        A caller that is cancelled does not wait for the records, but for the end of tasks and connections.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s

        async def close_telemetry(telemetry: TelemetryReporter) -> None:
            left = max(deadline - loop.time(), 0.0)
            await telemetry.close(min(TELEMETRY_CLOSE_TIMEOUT_S, left))

        async with AsyncExitStack() as ends:
            ends.callback(self.interceptors.close)
            ends.push_async_callback(self.client.close)
            unsent = IllegalStateError("the producer was closed before the record was sent")
            ends.push_async_callback(self.sender.close, unsent)
            if self.telemetry is not None:
                ends.push_async_callback(close_telemetry, self.telemetry)
            self.accumulator.close()
            self.sender.wakeup()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if self.transactions is not None:
                        self.transactions.abort_for_close()
                    await self.sender.wait_idle()

    def _add_to_transaction(self, topic_partition: TopicPartition) -> None:
        if self.transactions is not None and self.transactions.is_transactional:
            # The partition is known only now. The sender holds the batch back until it is in the transaction.
            self.transactions.maybe_add_partition(topic_partition)
            self.sender.wakeup()

    def _on_metadata(self, snapshot: ClusterMetadata) -> None:
        self._metadata_at = self.clock.monotonic()
        self._partition_counts = {
            name: len(topic.partitions)
            for name, topic in snapshot.topics.items()
            if topic.error is ErrorCode.NONE and topic.partitions
        }

    def _check_size(self, topic: str, size: int) -> None:
        for name, limit in (
            ("max.request.size", self.config.max_request_size),
            ("buffer.memory", self.config.buffer_memory),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"a record of about {size} bytes for topic {topic} is above `{name}`={limit}; raise it "
                    "(and max.message.bytes of the topic), or send less"
                )

    def _choose_partition(
        self, snapshot: ClusterMetadata, topic: str, key: bytes | None, value: bytes | None
    ) -> int | None:
        partitions = snapshot.topics[topic].partitions
        if self._partitioner is not None:
            available = self._available(snapshot, topic)
            chosen = self._partitioner.partition(topic, key, value, len(partitions), available)
            if chosen not in partitions:
                raise ValueError(
                    f"the partitioner chose partition {chosen} of topic {topic}, which has {len(partitions)}"
                )
            return chosen
        if key is not None and self._uses_keys:
            return partition_for_key(key, len(partitions))
        return None

    def _available(self, snapshot: ClusterMetadata, topic: str) -> list[int]:
        """Return the partitions that have a leader, in order."""
        partitions = snapshot.topics[topic].partitions
        return [number for number, each in sorted(partitions.items()) if each.leader_id in snapshot.brokers]


def _telemetry(
    config: ProducerConfig, client: NetworkClient, metrics: ClientMetrics
) -> TelemetryReporter | None:
    if not config.enable_metrics_push:
        return None
    transactional_id = config.transactional_id
    resource = {} if transactional_id is None else {"transactional_id": transactional_id}
    return TelemetryReporter(client, metrics, lambda: resource, client.runtime.random.uniform)


def _transactions(config: ProducerConfig) -> TransactionManager | None:
    if not config.enable_idempotence:
        return None
    return TransactionManager(
        config.transactional_id,
        config.transaction_timeout_ms,
        enables_two_phase_commit=config.transaction_two_phase_commit_enable,
    )


def _accumulator_settings(config: ProducerConfig) -> AccumulatorSettings:
    return AccumulatorSettings(
        batch_size=min(config.batch_size, config.buffer_memory, config.max_request_size),
        buffer_memory=config.buffer_memory,
        max_request_size=config.max_request_size,
        linger_s=config.linger_ms / 1000,
        delivery_timeout_s=config.delivery_timeout_ms / 1000,
        compression=config.compression,
        compression_level=config.compression_level,
        is_adaptive=config.partitioner_adaptive_partitioning_enable,
        availability_timeout_s=config.partitioner_availability_timeout_ms / 1000,
    )


def _sender_settings(config: ProducerConfig) -> SenderSettings:
    return SenderSettings(
        acks=config.acks_number,
        request_timeout_ms=config.request_timeout_ms,
        max_in_flight=config.max_in_flight_requests_per_connection,
        transactional_id=config.transactional_id,
    )


def _check_record(record: object) -> None:
    if not isinstance(record, ProducerRecord):
        raise ValueError(f"record={record!r} is {a_type(record)}; it takes a ProducerRecord")


def _check_numbers(timestamp_ms: object, partition: object) -> None:
    """Refuse a timestamp or a partition that is not an integer."""
    for name, value in (("timestamp_ms", timestamp_ms), ("partition", partition)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{name}={value!r} is {a_type(value)}; it takes an int or None")

"""Defines `AsyncProducer`, the producer for asyncio: the core on the program's own event loop.

`send` is a coroutine because it may have to wait for metadata or memory; the result of the record is a future
that it returns, to be awaited or not.

A task that sends without a pause must not starve the sender, which runs on the same loop, so `send` lets the
loop run once for each new batch.
"""

import asyncio
import os
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack

from kalda.clients.argument_checks import check_timeout
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.errors import IllegalStateError, RequestTimedOutError
from kalda.clients.facade import AsyncClient
from kalda.clients.foreign_attributes import PRODUCER, names_counterparts
from kalda.clients.loop_owner import LoopOwner
from kalda.clients.metadata import PartitionMetadata
from kalda.clients.producer.flush import await_results
from kalda.clients.producer.partitioner import PartitionChoice, Partitioner
from kalda.clients.producer.producer_base import ProducerBase
from kalda.clients.producer.producer_config import ProducerConfig, ProducerOptions
from kalda.clients.producer.producer_core import NO_HEADERS, ProducerCore, ProducerObjects
from kalda.clients.producer.producer_interceptor import ProducerInterceptor
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_future import Delivery, RecordFuture
from kalda.clients.producer.send_waits import (
    AsyncWaiter,
    RunBlocking,
    Step,
    WaitForMetadata,
    drive_async,
)
from kalda.clients.producer.serializers import Serializer
from kalda.clients.producer.transactional_producer import AsyncTransactionalProducer
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, V
from kalda.common.public import public
from kalda.common.types import UUID
from kalda.records.record import Header

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.clients.producer.arrow_future import ArrowFuture

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 30.0


@public
@names_counterparts(PRODUCER)
@lists_settings(ProducerConfig)
class AsyncProducer(ProducerBase[K, V], AsyncTransactionalProducer, AsyncClient, Generic[K, V]):
    """Sends records to the partitions of topics, in batches; belongs to one event loop.

    Example:
        ```python
        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("flights", value=b"AA 100", key=b"JFK")
            print((await future).offset)
        ```

    The settings are those of `ProducerConfig`. `close`, or the end of the ``async with`` block, sends what is
    left. `start` is called by the ``async with`` block, or by the first call that needs it.
    """

    @classmethod
    def from_config(
        cls,
        properties: PropertiesSource,
        *,
        key_serializer: Serializer[ConfiguredK] | Callable[[ConfiguredK], bytes | None] | None = None,
        value_serializer: Serializer[ConfiguredV] | Callable[[ConfiguredV], bytes | None] | None = None,
        partitioner: Partitioner | PartitionChoice | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **options: Unpack[ProducerOptions],
    ) -> "AsyncProducer[ConfiguredK, ConfiguredV]":
        """Make a producer of Kafka's dotted names; see `Producer.from_config`."""
        producer: AsyncProducer[Any, Any] = cls._from_config(
            properties,
            options,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        return producer

    def _set_up(self, config: ProducerConfig, objects: ProducerObjects) -> None:
        self._core = ProducerCore(config, objects)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = LoopOwner("AsyncProducer")
        self._is_stranded: Callable[[], bool] = _never
        """Whether nothing would send a record of an open batch: the loop is closed, or this is a fork."""
        self._waiting_count = 0
        """Calls of `send` that wait for something, which no later call may overtake."""
        self._is_closed = False

    async def start(self) -> None:
        """Begin to connect in the background; harmless when that is done.

        Raises:
            IllegalStateError: the producer is closed, or was started on another event loop.
        """
        self._begin()

    # Records.

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Delivery | None = None,
    ) -> RecordFuture:
        """Add a record to a batch; return its future, which ``await`` turns into the record's metadata.

        Waits up to `max.block.ms` while the topic is not known or `buffer.memory` is full. Arguments and
        exceptions are those of `Producer.send`; `on_delivery` is called on the event loop.
        """
        if headers is None:
            headers = NO_HEADERS
        if self._is_stranded():
            self._begin()
        core = self._core
        future = core.try_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is not None:
            return future
        if core.sender.is_idle and not self._waiting_count:
            self._begin()
            # The record is sent before this returns. Else a batch begins after a turn of the loop, in which
            # the sender takes what is there.
            future = core.try_begin_batch(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            if future is not None:
                return future
        record = ProducerRecord(
            topic=topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await self.send_record(record, on_delivery)

    async def send_record(self, record: ProducerRecord, on_delivery: Delivery | None = None) -> RecordFuture:
        """Send a `ProducerRecord`, as `send` does its fields."""
        self._begin()
        core = self._core
        self._waiting_count += 1
        try:
            return await drive_async(core.send(record, on_delivery, AsyncWaiter), self._do, core.max_block_s)
        finally:
            self._waiting_count -= 1

    async def send_arrow(self, topic: str, batch: "pa.RecordBatch") -> "ArrowFuture":
        """Send an Arrow record batch; return one future for all rows. See `Producer.send_arrow`.

        The rows are encoded on a thread of the loop's default executor.
        """
        from kalda.clients.producer.arrow_future import ArrowFuture

        self._begin()
        core = self._core
        rows = await drive_async(core.arrow_rows(topic, batch), self._do, core.max_block_s)
        batches = []
        for chunk in core.arrow_chunks(topic, rows):
            steps = core.append_arrow(topic, chunk, AsyncWaiter)
            batches.append(await drive_async(steps, self._do, core.max_block_s))
        return ArrowFuture(topic, batches)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all records without lingering and wait until each has its result; errors are in the futures.

        Raises:
            RequestTimedOutError: `timeout_s` seconds are over; the records go on.
        """
        if timeout_s is not None:
            check_timeout(timeout_s)
        self._begin()
        core = self._core
        results = core.accumulator.begin_flush()
        try:
            core.sender.wakeup()
            with core.producer_metrics.timing("flush"):
                async with asyncio.timeout(timeout_s):
                    await await_results(results)
        except TimeoutError:
            raise RequestTimedOutError(
                f"records were still under way after flush waited {timeout_s} s"
            ) from None
        finally:
            core.accumulator.end_flush()

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the partitions of a topic in order; waits up to `max.block.ms` while it is not known.

        Raises:
            RequestTimedOutError, BrokerResponseError: as `send`.
        """
        self._begin()
        return await self._core.partitions_for(topic)

    # Observation.

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id by which the cluster's metrics name this producer; see
        `Producer.client_instance_id`."""
        self._begin()
        return await self._core.client_instance_id(timeout_s)

    # The end.

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Send what is left for up to `timeout_s` seconds, then end the producer's tasks and connections.

        Records that could not be sent in time fail with `IllegalStateError`. An open transaction is aborted.
        Harmless when the producer is closed.

        Raises:
            TypeError: `timeout_s` is not a number; the producer stays open.
        """
        check_timeout(timeout_s)
        if self._is_closed or self._owner.is_foreign_process:
            # In a fork the connections are those of the parent.
            self._is_closed = True
            return
        self._owner.check()
        self._is_closed = True
        if self._loop is not None:
            await self._core.close(timeout_s)

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and not self._is_closed:
            warnings.warn(
                "an AsyncProducer was not closed; use it in an `async with` block or await close()",
                ResourceWarning,
                stacklevel=2,
            )

    # Internals.

    def _begin(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is loop and not self._is_closed:
            return loop
        if self._is_closed:
            raise IllegalStateError("the producer is closed; create another one to send records")
        self._owner.check()
        self._loop = loop
        self._is_stranded = loop.is_closed
        _started.add(self)
        self._core.start()
        return loop

    async def _do(self, step: Step[AsyncWaiter], deadline: float) -> object:
        """Perform the waits that a generator of the core yields; return the generator's result."""
        if isinstance(step, RunBlocking):
            return await asyncio.to_thread(step.call)
        if isinstance(step, WaitForMetadata):
            left = deadline - asyncio.get_running_loop().time()
            await self._core.topics.wait_known(step.topic, step.partition, left)
        elif isinstance(step, AsyncWaiter):
            await step.wait(deadline)
        else:
            # Once for each batch: the sender gets its turn.
            await asyncio.sleep(0)
        return None


_started: Final[weakref.WeakSet[AsyncProducer[Any, Any]]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_started):
        producer._is_stranded = _always


def _never() -> bool:
    return False


def _always() -> bool:
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

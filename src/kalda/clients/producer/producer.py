"""Defines `Producer`, the synchronous producer: the asyncio core on a loop thread of its own.

`send` runs in the caller's thread up to the append to a batch, and enters the loop's thread only by waking
the sender, at most once for each batch.

A forked child must not use the parent's producer, and a producer that nobody closes must not keep the
interpreter from exiting.
"""

import asyncio
import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, Unpack

from kalda.clients.argument_checks import check_timeout
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.errors import ClientError, IllegalStateError, RequestTimedOutError
from kalda.clients.foreign_attributes import PRODUCER, names_counterparts
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metadata import PartitionMetadata
from kalda.clients.producer.flush import wait_for_results
from kalda.clients.producer.partitioner import PartitionChoice, Partitioner
from kalda.clients.producer.producer_base import ProducerBase
from kalda.clients.producer.producer_config import ProducerConfig, ProducerOptions
from kalda.clients.producer.producer_core import NO_HEADERS, ProducerCore, ProducerObjects
from kalda.clients.producer.producer_interceptor import ProducerInterceptor
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_future import Delivery, RecordFuture
from kalda.clients.producer.send_waits import BlockingWaiter, RunBlocking, Step, WaitForMetadata, drive
from kalda.clients.producer.sender import Sender
from kalda.clients.producer.serializers import Serializer
from kalda.clients.producer.transactional_producer import LoopTransactions, TransactionalProducer
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, V
from kalda.common.public import public
from kalda.common.types import UUID
from kalda.records.record import Header
from kalda.runtime.system.clock import monotonic
from kalda.runtime.system.loop_logger import drain_log

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.clients.producer.arrow_future import ArrowFuture

T = TypeVar("T")

_CLOSE_TIMEOUT_S: Final = 30.0
_LOOK_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 1.0
"""The time that `close` waits for logging handlers, one of which may be its caller."""
_EXIT_FLUSH_S: Final = 1.0
"""The time that the interpreter's exit waits for the records of producers that were not closed."""


_TrySend = Callable[
    [str, object, object, Sequence[Header], int | None, int | None, Delivery | None], RecordFuture | None
]


@public
@names_counterparts(PRODUCER)
@lists_settings(ProducerConfig)
class Producer(ProducerBase[K, V], TransactionalProducer, Generic[K, V]):
    """Sends records to the partitions of topics, in batches; thread-safe.

    Example:
        ```python
        with Producer(bootstrap_servers="localhost:9092", compression_type="zstd") as producer:
            future = producer.send("flights", value=b"AA 100", key=b"JFK")
            print(future.result(10).offset)
        ```

    The settings are those of `ProducerConfig`. `close`, or the end of the ``with`` block, sends what is left.
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
    ) -> "Producer[ConfiguredK, ConfiguredV]":
        """Make a producer of Kafka's dotted names: ``from_config({"bootstrap.servers": "localhost:9092"})``.

        The path of a file does too: ``from_config("client.properties")``. Settings in `options` win.

        Java's own serializers may be named (``key.serializer``). Raises as the class does.
        """
        producer: Producer[Any, Any] = cls._from_config(
            properties,
            options,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        return producer

    def _set_up(self, config: ProducerConfig, objects: ProducerObjects) -> None:
        core = ProducerCore(config, objects)
        self._core = core
        self._inner = LoopTransactions(core)
        self._thread = LoopThread("kalda-producer")
        self._try_send: _TrySend = core.try_send
        self._close_lock = threading.RLock()
        """Reentrant: a signal handler may close a producer that is being closed."""
        self._is_closed = False
        self._refusal: str | None = None
        """Why no method may be called, in a forked child."""
        self._finalizer = weakref.finalize(self, _abandon, core, self._thread)
        self._finalizer.atexit = False
        _open.add(self)
        self._thread.call_soon(core.start)
        self._thread.call_soon(_look_again, core.sender, self._thread.loop)

    # Records.

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Delivery | None = None,
    ) -> RecordFuture:
        """Add a record to a batch; return its future.

        Blocks up to `max.block.ms` while the topic is not known or `buffer.memory` is full.

        Args:
            topic: The topic; the cluster may create it.
            value: Bytes, None, or what the value serializer takes.
            key: Bytes, None, or what the key serializer takes.
            headers: Pairs of a name and bytes or None; none if not given.
            partition: None leaves the choice to the partitioner.
            timestamp_ms: Milliseconds since the epoch; None for now.
            on_delivery: Called once with the metadata and the error or None, on the producer's thread; keep
                it short. Not called for a record that `send` raises an error for.

        Raises:
            SerializationError, RecordTooLargeError, ValueError: the record cannot be sent.
            RequestTimedOutError: `max.block.ms` is over; `BufferExhaustedError` if memory was missing.
            IllegalStateError: the producer is closed, or was created before this process was forked.
            TransactionAbortableError, FatalTransactionError: the transaction, or the producer, has failed.
        """
        if headers is None:
            headers = NO_HEADERS
        future = self._try_send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is not None:
            return future
        future = self._core.try_begin_batch(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is not None:
            return future
        record = ProducerRecord(
            topic=topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return self._send(record, on_delivery)

    def send_record(self, record: ProducerRecord, on_delivery: Delivery | None = None) -> RecordFuture:
        """Send a `ProducerRecord`, as `send` does its fields."""
        self._check_usable()
        return self._send(record, on_delivery)

    def send_arrow(self, topic: str, batch: "pa.RecordBatch") -> "ArrowFuture":
        """Send the rows of an Arrow record batch; return one future for all. Needs the extra ``[arrow]``.

        The columns are ``value``, and if wanted ``key``, ``headers`` (``list<struct<key, value>>``),
        ``partition`` and ``timestamp`` (a timestamp, or integer milliseconds); null means none. Rows go to
        the partitions that `send` would choose. Serializers and interceptors do not see them. Blocks up to
        `max.block.ms` for each part of the batch that does not fit into `buffer.memory`.

        Raises:
            ValueError: a column is missing, unknown or of another type; no row was sent.
            RecordTooLargeError: a row is too large; no row was sent.
            RequestTimedOutError, IllegalStateError, TransactionAbortableError, FatalTransactionError: as
                `send`; earlier rows may have been sent.
        """
        from kalda.clients.producer.arrow_future import ArrowFuture

        self._check_usable()
        core = self._core
        rows = drive(core.arrow_rows(topic, batch), self._do, core.max_block_s)
        batches = []
        for chunk in core.arrow_chunks(topic, rows):
            steps = core.append_arrow(topic, chunk, BlockingWaiter)
            batches.append(drive(steps, self._do, core.max_block_s))
        return ArrowFuture(topic, batches)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all records without lingering and wait until each has its result; errors are in the futures.

        Raises:
            RequestTimedOutError: `timeout_s` seconds are over; the records go on.
        """
        if timeout_s is not None:
            check_timeout(timeout_s)
        self._check_usable()
        self._check_may_block("flush")
        core = self._core
        results = core.accumulator.begin_flush()
        try:
            core.sender.wakeup()
            with core.producer_metrics.timing("flush"):
                is_done = wait_for_results(results, timeout_s, monotonic)
            if not is_done:
                raise RequestTimedOutError(f"records were still under way after flush waited {timeout_s} s")
        finally:
            core.accumulator.end_flush()

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the partitions of a topic in order; blocks up to `max.block.ms` while it is not known.

        Raises:
            RequestTimedOutError, BrokerResponseError: as `send`.
        """
        self._check_usable()
        return self._run(self._core.partitions_for(topic))

    # Observation.

    def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id by which the cluster's metrics of clients name this producer (KIP-714).

        Raises:
            IllegalStateError: `enable.metrics.push` is false, or the producer is closed.
            RequestTimedOutError: the cluster gave none in time; it may not collect metrics of clients.
        """
        return self._thread.call(self._core.client_instance_id(timeout_s), timeout_s)

    # The end.

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Send what is left for up to `timeout_s` seconds, then end the producer's thread and connections.

        Records that could not be sent in time fail with `IllegalStateError`. An open transaction is aborted.
        Harmless when the producer is closed.

        Raises:
            TypeError: `timeout_s` is not a number; the producer stays open.
            IllegalStateError: a callback of the producer, or a signal handler that interrupted a call of it,
                closes it; it stays open.
        """
        check_timeout(timeout_s)
        if self._thread.is_current:
            raise IllegalStateError(
                "close was called in a callback of the producer; hand it to another thread"
            )
        self._check_not_inside()
        with self._close_lock:
            if self._is_closed:
                return
            # A logging handler that sends with this producer still gets what the producer has logged.
            drain_log(_LOG_SECONDS)
            try:
                self._is_closed = True
                self._finalizer.detach()
                _open.discard(self)
                self._thread.call(self._core.close(timeout_s), timeout_s)
            finally:
                self._thread.close()

    # Internals.

    def _run(self, coroutine: Coroutine[Any, Any, T], *args: Any, **options: Any) -> T:
        try:
            self._check_not_inside()
        except IllegalStateError:
            coroutine.close()
            raise
        return self._thread.call(coroutine, self._core.max_block_s)

    def _send(self, record: ProducerRecord, on_delivery: Delivery | None) -> RecordFuture:
        core = self._core
        return drive(core.send(record, on_delivery, BlockingWaiter), self._do, core.max_block_s)

    def _do(self, step: Step[BlockingWaiter], deadline: float) -> object:
        """Perform the waits that a generator of the core yields; return the generator's result."""
        if isinstance(step, RunBlocking):
            return step.call()
        if isinstance(step, WaitForMetadata):
            self._thread.check_usable()
            left = deadline - monotonic()
            self._run(self._core.topics.wait_known(step.topic, step.partition, left))
        elif isinstance(step, BlockingWaiter):
            self._check_may_block("send, which has to wait for memory,")
            step.wait(deadline)
        return None

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise IllegalStateError(self._refusal)

    def _check_not_inside(self) -> None:
        """Refuse a signal handler that interrupted a method whose lock the loop needs."""
        self._core.accumulator.check_not_inside()
        if self._core.transactions is not None:
            self._core.transactions.check_not_inside()

    def _check_may_block(self, what: str) -> None:
        if self._thread.is_current:
            raise IllegalStateError(
                f"{what} was called in a callback of the producer, which would wait for itself; hand it to "
                "another thread"
            )

    def _after_fork(self) -> None:
        """Make the child's copy refuse all use; the parent's locks may be held for ever here."""
        self._finalizer.detach()
        self._is_closed = True
        self._refusal = message = (
            f"the producer was created in process {os.getppid()} and cannot be used in its fork "
            f"{os.getpid()}; create one in each process, after the fork"
        )

        def refuse(*_: object) -> NoReturn:
            raise IllegalStateError(message)

        self._try_send = refuse


_open: Final[weakref.WeakSet[Producer[Any, Any]]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_open):
        producer._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _at_exit() -> None:
    """Send the records of producers that were not closed; warn about those that could not be sent.

    They stay open: `logging.shutdown` runs later and may close that of a handler.
    """
    deadline = monotonic() + _EXIT_FLUSH_S
    for producer in list(_open):
        if not producer._is_closed and producer._core.accumulator.has_incomplete:
            try:
                producer.flush(max(deadline - monotonic(), 0.0))
            except ClientError:
                _warn_of_unsent(producer._core)


def _look_again(sender: Sender, loop: asyncio.AbstractEventLoop) -> None:
    """Find what a caller appended who was interrupted before the sender was woken."""
    sender.look_again()
    loop.call_later(_LOOK_SECONDS, _look_again, sender, loop)


def _abandon(core: ProducerCore, thread: LoopThread) -> None:
    """End the thread of a producer that was not closed, without waiting for its records."""
    _warn_of_unsent(core)
    thread.close_soon(core.close(0.0))


def _warn_of_unsent(core: ProducerCore) -> None:
    if core.accumulator.has_incomplete:
        warnings.warn(
            "a Producer was not closed and drops records that were not sent; use it in a `with` block or "
            "call close()",
            ResourceWarning,
            stacklevel=3,
        )

"""Runs a function for each record of a share group, many at a time, until it is stopped.

A record is accepted when the function has returned, and its result is stored. While it is being processed its
lock is renewed, so a slow record stays with this worker; the records of a worker that dies come again when
their locks end.
"""

import asyncio
import contextlib
import inspect
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Final, Generic, TypeVar, Unpack

from kalda.clients.argument_checks import check_callback
from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.errors import ClientConfigError, IllegalStateError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.serializers import Serializer
from kalda.clients.serde import V
from kalda.clients.share.acknowledgements import AcknowledgeType, reason_of
from kalda.clients.share.held_share_consumer import HeldShareConsumer, ShareIntake
from kalda.clients.share.share_core import DELAY_MAX_S, ShareTopics
from kalda.clients.share.share_record import ShareRecord
from kalda.common.public import public
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_DOUBLINGS_MAX: Final = 32

_Verdict = tuple[AcknowledgeType, float | None, str | None]
"""What becomes of a record, how long a released one waits (None: as the group's settings say), and why a
rejected one is rejected."""


@public
class WorkerOptions(CommonClientOptions, total=False):
    """The settings of a worker as keyword arguments: those that all clients share."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """The arguments of `worker`."""

    topics: ShareTopics
    group: str
    concurrency: int
    attempts: int | None
    reject_on: tuple[type[Exception], ...]
    backoff_s: float | None
    backoff_max_s: float
    time_limit_s: float | None
    stop_timeout_s: float
    value_deserializer: Deserializer[Any] | Callable[[bytes], Any] | None
    results_topic: str | None
    result_serializer: Serializer[Any] | Callable[[Any], bytes] | None
    options: WorkerOptions

    def check(self) -> None:
        counts: tuple[tuple[str, object], ...] = (
            ("concurrency", self.concurrency),
            ("attempts", 1 if self.attempts is None else self.attempts),
        )
        for name, value in counts:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ClientConfigError(f"{name}={value!r} is not allowed: it takes an int, at least 1")
        for name, seconds in (("time_limit_s", self.time_limit_s), ("stop_timeout_s", self.stop_timeout_s)):
            if seconds is not None and not seconds >= 0:
                raise ClientConfigError(f"{name}={seconds!r} is not allowed: it takes seconds, at least 0")
        for name, seconds in (("backoff_s", self.backoff_s), ("backoff_max_s", self.backoff_max_s)):
            if seconds is not None and not 0 <= seconds <= DELAY_MAX_S:
                raise ClientConfigError(
                    f"{name}={seconds!r} is not allowed: it takes seconds, 0 to {DELAY_MAX_S} (a week)"
                )
        if self.result_serializer is not None and self.results_topic is None:
            raise ClientConfigError("result_serializer needs results_topic, the topic of the results")

    def wait_s(self, deliveries: int) -> float | None:
        """Return how long a record waits that failed in so many deliveries; None: as the group says."""
        if self.backoff_s is None:
            return None
        doubled: float = self.backoff_s * 2 ** min(deliveries - 1, _DOUBLINGS_MAX)
        return max(self.backoff_s, min(doubled, self.backoff_max_s))


@public
def worker(
    topics: ShareTopics,
    group: str,
    *,
    concurrency: int = 16,
    attempts: int | None = None,
    reject_on: tuple[type[Exception], ...] = (),
    backoff_s: float | None = 1.0,
    backoff_max_s: float = 60.0,
    time_limit_s: float | None = None,
    stop_timeout_s: float = 30.0,
    value_deserializer: Deserializer[V] | Callable[[bytes], V] | None = None,
    results_topic: str | None = None,
    result_serializer: Serializer[Any] | Callable[[Any], bytes] | None = None,
    **options: Unpack[WorkerOptions],
) -> Callable[[Callable[[ShareRecord[bytes | None, V]], T]], "Worker[T, V]"]:
    """Make a worker of a function that processes one record; `Worker.run` runs it.

    A function that is a coroutine runs on the event loop, any other in a thread. A record is accepted when
    the function has returned. When the function raises, the record is released and comes again after a
    back-off, up to `attempts` times; then it is rejected. Without `attempts` the group's
    `share.delivery.count.limit` counts. A record that cannot be deserialized is rejected.

    Args:
        topics: A topic, several, or an `re.Pattern`.
        group: The share group that the workers belong to.
        concurrency: How many records this worker processes at a time.
        attempts: After how many deliveries a record that fails is rejected.
        reject_on: Exceptions after which a record is rejected at once.
        backoff_s: How long a record that fails is not delivered again; None leaves it to the settings of the
            group. Apache Kafka's brokers deliver it at once.
        backoff_max_s: If it is above `backoff_s`, the wait doubles with each delivery up to it.
        time_limit_s: How long one record may take. A coroutine is cancelled then. A thread cannot be
            stopped: the record fails, and the thread takes no other one until the function returns.
        stop_timeout_s: How long a worker that is stopped waits for the records under way.
        value_deserializer: Makes values of bytes, as of a `ShareConsumer`. Keys are bytes.
        results_topic: Where results that are not None are sent, with the key and headers of the record.
        result_serializer: Makes bytes of results.
        options: The settings that all clients share, such as `bootstrap_servers`.

    Raises:
        ClientConfigError: a value is not allowed.
    """
    settings = _Settings(
        topics,
        group,
        concurrency,
        attempts,
        tuple(reject_on),
        backoff_s,
        backoff_max_s,
        time_limit_s,
        stop_timeout_s,
        value_deserializer,
        results_topic,
        result_serializer,
        options,
    )
    settings.check()
    return lambda function: Worker(function, settings)


@public
class Worker(Generic[T, V]):
    """A function that processes the records of a share group; `kalda.worker` makes it.

    Example:
        ```python
        @kalda.worker("jobs", "workers", concurrency=64, bootstrap_servers="localhost:9092")
        def work(record):
            print(record.value)

        work.run()
        ```
    """

    def __init__(self, function: Callable[[ShareRecord[bytes | None, V]], T], settings: Any) -> None:
        check_callback("function", function)
        self._function: Final = function
        self._settings: Final[_Settings] = settings
        self._work: _Work | None = None
        update_wrapper(self, function)

    def __call__(self, record: ShareRecord[bytes | None, V]) -> T:
        """Call the function itself, as a test does."""
        return self._function(record)

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Process records until SIGTERM, SIGINT or `stop`; `options` come before those of `kalda.worker`.

        A signal stops it gracefully: it takes no more records, finishes those under way within
        `stop_timeout_s` and releases the others. A second signal ends the process as usual.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
            ClientError: the cluster refuses the worker, e.g. for lack of rights.
        """
        asyncio.run(self._run_until_signal(options))

    async def run_async(self, **options: Unpack[WorkerOptions]) -> None:
        """Process records on the running loop until `stop`, or until the task is cancelled.

        Raises:
            IllegalStateError: the worker runs already.
            ClientConfigError: a setting is unknown or not allowed.
            ClientError: the cluster refuses the worker.
        """
        if self._work is not None:
            raise IllegalStateError(f"the worker {self._name} runs already")
        work = self._work = _Work(self._function, self._settings, {**self._settings.options, **options})
        try:
            await work.run()
        finally:
            self._work = None

    def stop(self) -> None:
        """Have `run` end: records under way are finished. From any thread; harmless if it does not run."""
        work = self._work
        if work is not None:
            # Without effect when the loop has ended meanwhile.
            with contextlib.suppress(RuntimeError):
                work.loop.call_soon_threadsafe(work.stop)

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", repr(self._function))

    async def _run_until_signal(self, options: WorkerOptions) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            logger.info("The worker %s stops; a second signal ends it at once.", self._name)
            restore()
            self.stop()

        def restore() -> None:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

        # Only the main thread gets signals, and not every system has handlers on the loop.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for each in _SIGNALS:
                loop.add_signal_handler(each, stop)
        try:
            await self.run_async(**options)
        finally:
            with contextlib.suppress(NotImplementedError):
                restore()


class _Work:
    """One run of a worker."""

    def __init__(
        self,
        function: Callable[[ShareRecord[Any, Any]], Any],
        settings: _Settings,
        options: WorkerOptions,
    ) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._function: Final = function
        self._is_coroutine: Final = inspect.iscoroutinefunction(function)
        self._settings: Final = settings
        self._consumer: Final = HeldShareConsumer(
            **options,
            group_id=settings.group,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=settings.concurrency,
            value_deserializer=settings.value_deserializer,
        )
        self._intake: Final = ShareIntake(self._consumer, self._room, self._begin)
        self._producer: Final = (
            None
            if settings.results_topic is None
            else AsyncProducer(**options, value_serializer=settings.result_serializer)
        )
        self._threads: Final = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="kalda-worker")
        self._jobs: Final[set[asyncio.Task[None]]] = set()
        """Each processes one record."""
        self._overdue: Final[set[asyncio.Future[Any]]] = set()
        """Threads that are behind the time limit; each takes the place of a job."""
        self._stopped: Final = asyncio.Event()

    def stop(self) -> None:
        """Take no more records."""
        self._stopped.set()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as ends:
            ends.callback(self._threads.shutdown, wait=False, cancel_futures=True)
            if self._producer is not None:
                await ends.enter_async_context(self._producer)
            await ends.enter_async_context(self._consumer)
            await self._consumer.subscribe(self._settings.topics)
            taking = self.loop.create_task(self._intake.run(), name=f"records of {self._settings.group}")
            ends.push_async_callback(_cancelled, taking)
            taking.add_done_callback(lambda _: self.stop())
            try:
                await self._stopped.wait()
            finally:
                self._intake.stop()
                await self._finish()
            if taking.done():
                taking.result()

    def _room(self) -> int:
        return self._settings.concurrency - self._intake.held_count - len(self._overdue)

    def _begin(self, number: int, record: ShareRecord[Any, Any]) -> None:
        task = self.loop.create_task(self._process(number, record), name=f"record {record.offset}")
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _process(self, number: int, record: ShareRecord[Any, Any]) -> None:
        # What a worker that stops does not finish is delivered again at once: the record has not failed.
        verdict: _Verdict = AcknowledgeType.RELEASE, 0.0, None
        try:
            result = await self._call(record)
            topic = self._settings.results_topic
            if self._producer is not None and topic is not None and result is not None:
                sent = await self._producer.send(topic, result, key=record.key, headers=record.headers)
                await sent
            verdict = AcknowledgeType.ACCEPT, None, None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # The function's sys.exit(), or a cancelled task that it waits for, is a failure of the record, or
            # one record would end one worker after the other. It is not where this worker cancels.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            verdict = self._verdict(record, error)
        finally:
            self._intake.settle(number, *verdict)

    async def _call(self, record: ShareRecord[Any, Any]) -> Any:
        limit_s = self._settings.time_limit_s
        if self._is_coroutine:
            async with asyncio.timeout(limit_s):
                return await self._function(record)
        future = self.loop.run_in_executor(self._threads, _outcome, self._function, record)
        try:
            async with asyncio.timeout(limit_s):
                result, error = await asyncio.shield(future)
            if error is not None:
                raise error
            return result
        finally:
            if not future.done():
                self._overdue.add(future)
                future.add_done_callback(self._overdue_done)

    def _verdict(self, record: ShareRecord[Any, Any], error: BaseException) -> _Verdict:
        """Return the acknowledgement for a record that failed."""
        settings = self._settings
        is_last = settings.attempts is not None and record.delivery_count >= settings.attempts
        is_rejected = is_last or isinstance(error, settings.reject_on)
        logger.warning(
            "The record at offset %d of %s failed in delivery %d and is %s: %r",
            record.offset,
            record.topic_partition,
            record.delivery_count,
            "rejected" if is_rejected else "released",
            error,
            exc_info=error,
        )
        if is_rejected:
            return AcknowledgeType.REJECT, None, reason_of(error)
        return AcknowledgeType.RELEASE, settings.wait_s(record.delivery_count), None

    async def _finish(self) -> None:
        """Wait for the records under way, and release those that take too long."""
        try:
            if self._jobs:
                await asyncio.wait(self._jobs, timeout=self._settings.stop_timeout_s)
        finally:
            jobs = list(self._jobs)
            if jobs:
                logger.warning("%d records are not finished in time and are released.", len(jobs))
            for task in jobs:
                task.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    def _overdue_done(self, future: "asyncio.Future[Any]") -> None:
        self._overdue.discard(future)
        self._intake.look()
        if not future.cancelled() and (error := future.result()[1]) is not None:
            logger.info("A function raised %r behind its time limit.", error)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _outcome(
    function: Callable[[ShareRecord[Any, Any]], Any], record: ShareRecord[Any, Any]
) -> tuple[Any, BaseException | None]:
    """Return what the function returns or raises: a future takes no StopIteration, and is never done then."""
    try:
        return function(record), None
    except BaseException as error:
        return None, error

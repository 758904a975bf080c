"""Sends the load of `kalda legacy ProducerPerformance` from threads, and formats its lines."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kalda.command.output import Json
from kalda.tools.legacy.simple_date_format import SimpleDateFormat

if TYPE_CHECKING:
    from kalda.clients.producer.producer import Producer as NewProducer

HEADER: Final = (
    "start.time, end.time, compression, message.size, batch.size, total.data.sent.in.MB, MB.sec, "
    "total.data.sent.in.nMsg, nMsg.sec"
)
DETAILED_HEADER: Final = (
    "time, compression, thread.id, message.size, batch.size, total.data.sent.in.MB, MB.sec, "
    "total.data.sent.in.nMsg, nMsg.sec"
)
_ID_DIGITS: Final = 10
"""The digits of a message id: those of the largest int."""
_MB: Final = 1024 * 1024
_STOP_SECONDS: Final = 2.0
"""How long an interrupted run waits for its threads."""


class Sink(Protocol):
    """A producer, old or new."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a message."""
        ...

    def close(self) -> None:
        """Send what waits, and close."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """What each thread sends."""

    topics: tuple[str, ...]
    count: int
    """Messages of each thread to each topic."""
    message_size: int
    is_fixed_size: bool
    initial_id: int | None
    """The id of the first message; None for messages of zeros."""
    gap_seconds: float

    def value(self, topic: str, thread_id: int, number: int, size_below: Callable[[int], int]) -> bytes:
        """Return a message: zeros, or ``Topic:t:ThreadID:0:MessageID:0000000007:xxx…``.

        Each thread has a range of ids of its own.
        """
        size = self.message_size if self.is_fixed_size else 1 + size_below(self.message_size)
        if self.initial_id is None:
            return bytes(size)
        message_id = self.initial_id + self.count * thread_id + number
        head = f"Topic:{topic}:ThreadID:{thread_id}:MessageID:{message_id:0{_ID_DIGITS}}:"
        return head.ljust(size, "x").encode()


class OldSink:
    """The old producer."""

    def __init__(self, properties: dict[str, object]) -> None:
        from kalda.clients.legacy import Producer, ProducerData

        self._producer: Final = Producer(properties)
        self._data: Final = ProducerData

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a message, or add it to the queue."""
        self._producer.send(self._data(topic, key, value))

    def close(self) -> None:
        """Send what is in the queue."""
        self._producer.close()


class NewSink:
    """The new producer."""

    def __init__(self, properties: dict[str, object], *, is_sync: bool) -> None:
        from kalda.clients.producer.producer import Producer

        self._producer: Final[NewProducer] = Producer.from_config(properties)
        self._is_sync: Final = is_sync

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a message; sync waits for its acknowledgement."""
        future = self._producer.send(topic, value=value, key=key)
        if self._is_sync:
            future.result()

    def close(self) -> None:
        """Wait for what is on its way."""
        self._producer.close()


@dataclass(slots=True)
class Sent:
    """What a thread has sent."""

    bytes: int = 0
    messages: int = 0
    failures: int = 0
    last_failure: Exception | None = None


def run_thread(
    load: Load, thread_id: int, sink: Sink, on_sent: Callable[[int, Sent], None], stopping: threading.Event
) -> Sent:
    """Send the messages of one thread; `on_sent` gets what was sent after each."""
    sent = Sent()
    try:
        for number in range(load.count):
            if stopping.is_set():
                break
            key = number.to_bytes(number.bit_length() // 8 + 1, "big")
            for topic in load.topics:
                value = load.value(topic, thread_id, number, random.randrange)
                try:
                    sink.send(topic, key, value)
                except Exception as error:
                    sent.failures, sent.last_failure = sent.failures + 1, error
                    continue
                sent.bytes += len(value)
                sent.messages += 1
                on_sent(thread_id, sent)
                if load.gap_seconds:
                    time.sleep(load.gap_seconds)
    finally:
        sink.close()
    return sent


class Report:
    """Formats what threads have sent.

    Args:
        write: Takes a line, and the document that stands for it in JSON.
        dates: Formats times.
        settings: The codec's number, the size of messages and that of batches.
        interval: The messages of a thread between two detailed lines; None for one line with the sum.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        write: Callable[[Json, str], None],
        dates: SimpleDateFormat,
        settings: tuple[int, int, int],
        interval: int | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._write: Final = write
        self._dates: Final = dates
        self._settings: Final = settings
        self._interval: Final = interval
        self._clock: Final = clock
        self._began: Final = clock()
        self._last: Final[dict[int, tuple[float, int, int]]] = {}
        """When each thread reported last, with the bytes and messages that it had sent."""

    def on_sent(self, thread_id: int, sent: Sent) -> None:
        """Write a detailed line when a thread has sent `interval` messages since its last one."""
        if self._interval is None or sent.messages % self._interval:
            return
        now = self._clock()
        then, last_bytes, last_messages = self._last.get(thread_id, (self._began, 0, 0))
        self._last[thread_id] = (now, sent.bytes, sent.messages)
        codec, size, batch = self._settings
        rates = _Rates(sent.bytes - last_bytes, sent.messages - last_messages, now - then)
        self._write(
            {"time": self._date(now), "thread.id": thread_id, **self._document(sent, rates)},
            f"{self._date(now)}, {codec}, {thread_id}, {size}, {batch}, {_numbers(sent, rates)}",
        )

    def sum(self, sent: Sequence[Sent]) -> None:
        """Write the line of all threads, unless there were detailed ones."""
        if self._interval is not None:
            return
        ended = self._clock()
        total = Sent(sum(each.bytes for each in sent), sum(each.messages for each in sent))
        rates = _Rates(total.bytes, total.messages, ended - self._began)
        times = {"start.time": self._date(self._began), "end.time": self._date(ended)}
        codec, size, batch = self._settings
        self._write(
            {**times, **self._document(total, rates)},
            f"{', '.join(times.values())}, {codec}, {size}, {batch}, {_numbers(total, rates)}",
        )

    def _date(self, seconds: float) -> str:
        return self._dates.format(datetime.fromtimestamp(seconds, UTC).astimezone())

    def _document(self, sent: Sent, rates: "_Rates") -> dict[str, Json]:
        codec, size, batch = self._settings
        return {
            "compression": codec,
            "message.size": size,
            "batch.size": batch,
            "total.data.sent.in.MB": sent.bytes / _MB,
            "MB.sec": rates.mb,
            "total.data.sent.in.nMsg": sent.messages,
            "nMsg.sec": rates.messages,
        }


class _Rates:
    """What was sent in a second."""

    def __init__(self, sent_bytes: int, messages: int, seconds: float) -> None:
        seconds = max(seconds, 0.001)
        self.mb: Final = sent_bytes / _MB / seconds
        self.messages: Final = messages / seconds


def _numbers(sent: Sent, rates: _Rates) -> str:
    return f"{sent.bytes / _MB:.2f}, {rates.mb:.4f}, {sent.messages}, {rates.messages:.4f}"


def run_threads(load: Load, sinks: Sequence[Sink], report: Report) -> list[Sent]:
    """Send the load through each sink in a thread of its own; return what each sent.

    Where the caller is interrupted, the threads end with their message, and those that wait for a broker with
    the process.
    """
    stopping = threading.Event()
    runs = [
        _in_thread(partial(run_thread, load, number, each, report.on_sent, stopping))
        for number, each in enumerate(sinks)
    ]
    try:
        sent = [each.result() for each in runs]
    except BaseException:
        stopping.set()
        wait(runs, _STOP_SECONDS)
        raise
    report.sum(sent)
    return sent


def _in_thread(function: Callable[[], Sent]) -> "Future[Sent]":
    """Call a function in a thread that does not keep the process: those of an executor do."""
    future: Future[Sent] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future

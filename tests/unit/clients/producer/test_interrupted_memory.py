"""An exception out of a signal handler, at every step of an append, uses up no `buffer.memory`."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.producer import Producer
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.send_waits import BlockingWaiter, drive
from kalda.records.compression import Compression
from kalda.records.record import Header
from tests.interrupts import interrupted_at
from tests.unit.clients.producer.producer_fixtures import TIME_MS, TOPIC, accumulator, snapshot

HEADERS: tuple[Header, ...] = ()


def complete_all(records: RecordAccumulator) -> None:
    """End all batches as the sender does."""
    for batch in records.take_incomplete():
        batch.complete(0, -1)
        records.completed(batch)


def appends_to_new(records: RecordAccumulator, value: bytes) -> None:
    records.try_append_to_new(TOPIC, 0, None, value, TIME_MS, HEADERS, None, now=0.0, snapshot=snapshot())


def appends_encoded(records: RecordAccumulator, value: bytes) -> None:
    waiter = MemoryWaiter(200, lambda: None)
    try:
        assert records.reserve(waiter)
        records.append_encoded(
            TOPIC, None, bytearray(value), 1, reserved=waiter, now=0.0, snapshot=snapshot()
        )
    except BaseException:
        records.cancel_reservation(waiter)
        raise


def appends_slowly(records: RecordAccumulator, value: bytes) -> None:
    waiter = MemoryWaiter(records.memory_for(None, value, HEADERS), lambda: None)
    try:
        assert records.reserve(waiter)
        records.append(
            TOPIC, None, None, value, TIME_MS, HEADERS, None, reserved=waiter, now=0.0, snapshot=snapshot()
        )
    except BaseException:
        records.cancel_reservation(waiter)
        raise


@pytest.mark.parametrize("append", [appends_to_new, appends_encoded, appends_slowly])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_an_interrupted_append_keeps_no_memory(
    append: Callable[[RecordAccumulator, bytes], None], compression: Compression
) -> None:
    """A program with a timer would run out of `buffer.memory` after days."""
    step = 0
    while True:
        records = accumulator(compression=compression)
        append(records, b"first")
        is_interrupted = interrupted_at(step, partial(append, records, b"x" * 100))
        complete_all(records)
        assert records.pool.total == records.pool.available, f"interrupted at step {step}"
        if not is_interrupted:
            break
        step += 1
    assert step > 5


def test_a_caller_that_is_interrupted_in_its_wait_or_behind_it_keeps_no_memory() -> None:
    """Also where the memory was granted just then."""
    producer = Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=16_384, max_block_ms=60_000)
    try:
        records = producer._core.accumulator
        step = 0
        is_interrupted = True
        while is_interrupted:
            held = MemoryWaiter(16_384, lambda: None)
            assert records.reserve(held)
            timer = threading.Timer(0.0, records.cancel_reservation, (held,))
            steps = producer._core.reserved(1_000, BlockingWaiter, lambda waiter: None)
            append = partial(drive, steps, producer._do, 30.0)
            timer.start()
            is_interrupted = interrupted_at(step, append)
            timer.join()
            if is_interrupted:
                assert records.pool.total == records.pool.available, f"interrupted at step {step}"
            step += 1
    finally:
        producer.close(0.0)

"""Futures of records: each completes once, in every way that a program may wait for it."""

import asyncio
import threading

import pytest

from kalda.clients.errors import ClientError
from kalda.clients.producer.flush import wait_for_results
from kalda.clients.producer.record_future import BatchResult, RecordFuture
from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.runtime.system.clock import monotonic


def future_at(result: BatchResult, index: int) -> RecordFuture:
    for number in range(len(result.timestamps_ms), index + 1):
        result.add_record(1_000 + number, 1, 2)
    return RecordFuture(result, index)


def test_the_offset_counts_from_the_batchs() -> None:
    result = BatchResult("t", 3)
    future = future_at(result, 4)
    assert not future.done()
    result.complete(100)
    assert future.done()
    assert RecordMetadata("t", 3, 104, 1_004, 1, 2) == future.result(0)
    assert future.exception(0) is None


def test_log_append_time_replaces_the_records_own() -> None:
    result = BatchResult("t", 0)
    result.complete(0, 77)
    assert 77 == future_at(result, 0).result(0).timestamp_ms


def test_without_an_offset_all_records_have_none() -> None:
    """That is acks=0, and a duplicate whose offset the broker forgot."""
    result = BatchResult("t", 0)
    result.complete(-1)
    metadata = future_at(result, 5).result(0)
    assert -1 == metadata.offset
    assert not metadata.has_offset


def test_one_record_may_fail_in_its_own_way() -> None:
    result = BatchResult("t", 0)
    whole, single = ClientError("batch"), ClientError("record 1")
    result.fail(whole, {1: single})
    assert whole is future_at(result, 0).exception(0)
    assert single is future_at(result, 1).exception(0)
    with pytest.raises(ClientError, match="record 1"):
        future_at(result, 1).result(0)


def test_a_result_that_does_not_come_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="t-0 within 0 seconds"):
        future_at(BatchResult("t", 0), 0).result(0)


def test_a_second_completion_is_our_bug() -> None:
    result = BatchResult("t", 0)
    result.complete(1)
    with pytest.raises(AssertionError):
        result.complete(2)


def test_callbacks_run_once_also_when_they_come_late() -> None:
    result = BatchResult("t", 0)
    calls: list[int] = []
    future = future_at(result, 0)
    future.add_done_callback(lambda done: calls.append(done.metadata().offset))
    assert [] == calls
    result.complete(9)
    future.add_done_callback(lambda done: calls.append(-done.metadata().offset))
    assert [9, -9] == calls


def test_an_exception_of_a_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    result = BatchResult("t", 0)
    calls: list[int] = []

    def failing(_: RecordFuture) -> None:
        raise ValueError("mine")

    future_at(result, 0).add_done_callback(failing)
    future_at(result, 1).add_done_callback(lambda _: calls.append(1))
    result.complete(0)
    assert [1] == calls
    assert "ignored" in caplog.text


def test_a_thread_that_waits_is_woken() -> None:
    result = BatchResult("t", 0)
    offsets: list[int] = []
    thread = threading.Thread(target=lambda: offsets.append(future_at(result, 2).result(60).offset))
    thread.start()
    result.complete(40)
    thread.join(60)
    assert [42] == offsets


async def test_a_future_can_be_awaited_before_and_after_it_is_done() -> None:
    result = BatchResult("t", 0)
    future = future_at(result, 1)
    waiting = asyncio.ensure_future(_metadata(future))
    await asyncio.sleep(0)
    result.complete(10)
    assert 11 == (await waiting).offset
    assert 11 == (await future).offset


async def test_a_future_completed_by_another_thread_wakes_the_loop() -> None:
    result = BatchResult("t", 0)
    thread = threading.Thread(target=lambda: result.complete(5))
    waiting = asyncio.ensure_future(_metadata(future_at(result, 0)))
    await asyncio.sleep(0)
    thread.start()
    assert 5 == (await waiting).offset
    thread.join()


async def test_a_cancelled_wait_does_not_disturb_the_result() -> None:
    result = BatchResult("t", 0)
    waiting = asyncio.ensure_future(_metadata(future_at(result, 0)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    result.complete(1)
    assert 1 == (await future_at(result, 0)).offset


def test_a_flush_waits_for_the_callbacks_and_futures_do_not() -> None:
    result = BatchResult("t", 0)
    future = RecordFuture(result, 0)
    result.add_record(5, -1, 1)
    has_begun, may_end = threading.Event(), threading.Event()

    def deliver() -> None:
        has_begun.set()
        may_end.wait(60)

    completing = threading.Thread(target=lambda: result.complete(7, deliver=deliver))
    completing.start()
    assert has_begun.wait(60)

    assert 7 == future.result(60).offset
    assert not wait_for_results([result], 0.0, monotonic)
    may_end.set()
    assert wait_for_results([result], 60.0, monotonic)
    completing.join()


def test_those_who_wait_are_woken_although_a_callback_raises() -> None:
    result = BatchResult("t", 0)

    def deliver() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result.fail(ClientError("lost"), deliver=deliver)
    assert wait_for_results([result], 0.0, monotonic)


def test_a_split_moves_all_who_wait_to_the_part_with_their_record() -> None:
    whole = BatchResult("t", 0)
    parts = [BatchResult("t", 0), BatchResult("t", 0)]
    futures = [future_at(whole, index) for index in range(5)]
    done: list[int] = []
    for future in futures:
        future.add_done_callback(lambda each: done.append(each.metadata().offset))
    whole.split([0, 3], parts)
    assert not any(future.done() for future in futures)
    parts[1].complete(20)
    assert [20, 21] == done
    parts[0].complete(7)
    assert [7, 8, 9, 20, 21] == [future.result(0).offset for future in futures]
    assert [20, 21, 7, 8, 9] == done


def test_a_thread_waits_across_a_split() -> None:
    whole, part = BatchResult("t", 0), BatchResult("t", 0)
    offsets: list[int] = []
    thread = threading.Thread(target=lambda: offsets.append(future_at(whole, 1).result(60).offset))
    thread.start()
    whole.split([0], [part])
    part.complete(1)
    thread.join(60)
    assert [2] == offsets


async def _metadata(future: RecordFuture) -> RecordMetadata:
    return await future

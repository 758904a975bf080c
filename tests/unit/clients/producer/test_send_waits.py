"""What a record waits for on the long way of `send`, and what becomes of it when a wait fails."""

import asyncio

import pytest

from kalda.clients.errors import BufferExhaustedError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.producer.producer_core import ProducerCore, ProducerObjects
from kalda.clients.producer.producer_interceptor import ProducerInterceptor
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.clients.producer.send_waits import (
    BEFORE_BATCH,
    AsyncWaiter,
    BlockingWaiter,
    RunBlocking,
    Step,
    Steps,
    WaitForMetadata,
    drive,
    drive_async,
)
from kalda.common.settings import LONG_MAX
from kalda.runtime.system.clock import monotonic
from tests.unit.clients.metadata_responses import partition, response, topic

BUFFER_BYTES = 1_000
RECORD = ProducerRecord(topic="t", value=b"v", partition=0)


class FailureError(Exception):
    """What a wait raises here."""


class Refusals(ProducerInterceptor):
    """Keeps the errors of records."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.errors.append(error)

    def close(self) -> None:
        return


def producer_core(*interceptors: ProducerInterceptor) -> ProducerCore:
    config = ProducerConfig.from_options(
        {"bootstrap_servers": "127.0.0.1:1", "buffer_memory": BUFFER_BYTES, "batch_size": BUFFER_BYTES}
    )
    return ProducerCore(config, ProducerObjects(interceptors=interceptors))


def know_topic(core: ProducerCore) -> None:
    core.metadata.snapshot = ClusterMetadata.from_response(response(topic("t", partition(0, 0, 1))))


def known_core(*interceptors: ProducerInterceptor) -> ProducerCore:
    core = producer_core(*interceptors)
    know_topic(core)
    return core


def held_memory(core: ProducerCore) -> MemoryWaiter:
    held = MemoryWaiter(BUFFER_BYTES, lambda: None)
    assert core.accumulator.reserve(held)
    return held


def test_a_record_of_an_unknown_topic_waits_for_metadata_first() -> None:
    core = producer_core()
    steps = core.send(RECORD, None, BlockingWaiter)

    assert WaitForMetadata("t", 0) == next(steps)
    know_topic(core)
    assert BEFORE_BATCH is next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert ("t", 0) == end.value.value.topic_partition


def test_a_record_for_an_open_batch_waits_for_nothing() -> None:
    core = known_core()
    steps = core.send(RECORD, None, BlockingWaiter)
    assert BEFORE_BATCH is next(steps)
    with pytest.raises(StopIteration):
        next(steps)

    with pytest.raises(StopIteration):
        next(core.send(RECORD, None, BlockingWaiter))


def test_a_caller_without_memory_waits_until_it_is_granted() -> None:
    core = known_core()
    held = held_memory(core)
    steps = core.send(RECORD, None, BlockingWaiter)
    next(steps)

    waiter = next(steps)

    assert isinstance(waiter, BlockingWaiter)
    core.accumulator.cancel_reservation(held)
    waiter.wait(monotonic() + 1.0)
    with pytest.raises(StopIteration):
        next(steps)


def test_a_caller_that_goes_on_without_memory_gets_an_error() -> None:
    refusals = Refusals()
    core = known_core(refusals)
    held_memory(core)
    steps = core.send(RECORD, None, BlockingWaiter)
    next(steps)
    next(steps)

    with pytest.raises(BufferExhaustedError) as error:
        next(steps)
    assert [error.value] == refusals.errors


def test_a_wait_that_fails_gives_its_memory_back_and_is_an_error_of_the_record() -> None:
    refusals = Refusals()
    core = known_core(refusals)
    held = held_memory(core)
    failure = FailureError()

    def fail(step: Step[BlockingWaiter], deadline: float) -> None:
        if isinstance(step, BlockingWaiter):
            core.accumulator.cancel_reservation(held)
            raise failure

    with pytest.raises(FailureError):
        drive(core.send(RECORD, None, BlockingWaiter), fail, 1.0)
    assert [failure] == refusals.errors
    assert BUFFER_BYTES == core.accumulator.pool.available


async def test_a_task_that_is_cancelled_in_its_wait_gives_its_memory_back() -> None:
    core = known_core()
    held = held_memory(core)

    waits = asyncio.Event()

    async def wait(step: Step[AsyncWaiter], deadline: float) -> None:
        if isinstance(step, AsyncWaiter):
            waits.set()
            await step.wait(deadline)

    sending = asyncio.create_task(drive_async(core.send(RECORD, None, AsyncWaiter), wait, 1e6))
    await waits.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    core.accumulator.cancel_reservation(held)
    assert BUFFER_BYTES == core.accumulator.pool.available


def test_the_result_of_a_step_goes_to_the_generator() -> None:
    def doubled(number: int) -> Steps[BlockingWaiter, int]:
        found: int = yield RunBlocking(lambda: number)
        return 2 * found

    def run(step: Step[BlockingWaiter], deadline: float) -> object:
        assert isinstance(step, RunBlocking)
        return step.call()

    assert 42 == drive(doubled(21), run, 1.0)


@pytest.mark.parametrize("max_block_s", [0.0, LONG_MAX / 1000])
def test_any_max_block_ms_is_a_time_to_wait(max_block_s: float) -> None:
    """Java's longest time is far above what a lock of Python takes."""
    waiter = BlockingWaiter(1)
    waiter.wake()
    waiter.wait(monotonic() + max_block_s)

"""Workers: functions and coroutines, failures, results, time limits, long records, graceful stop."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

import kalda
from kalda import (
    Admin,
    AlterConfigOp,
    BrokerResponseError,
    ClientConfigError,
    ConfigResource,
    Consumer,
    IllegalStateError,
    NewTopic,
    Producer,
    ShareRecord,
    Worker,
    serializers,
    worker,
)
from tests.shared_broker import shared_broker

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
SECONDS = 60.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_broker(tmp_path_factory.mktemp("shared"), SETTINGS) as address:
        yield address


def make(bootstrap: str, *values: str, **settings: str) -> tuple[str, str]:
    """Return a topic with values, and a group that begins at its start."""
    topic, group = (f"{prefix}-{uuid.uuid4().hex[:8]}" for prefix in ("t", "g"))
    settings = {"share.auto.offset.reset": "earliest", **settings}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        changes = [AlterConfigOp.set(name, value) for name, value in settings.items()]
        admin.incremental_alter_configs({ConfigResource.group(group): changes})
    fill(bootstrap, topic, *values)
    return topic, group


def fill(bootstrap: str, topic: str, *values: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value.encode(), key=b"k", headers=[("trace", b"1")])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)


@contextmanager
def running(*workers: Worker[Any, Any]) -> Iterator[None]:
    """Run workers in threads; stop them at the end."""
    failures: list[BaseException] = []

    def run(each: Worker[Any, Any]) -> None:
        try:
            each.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each, thread in zip(workers, threads, strict=True):
            # It has stopped, or it can be stopped.
            while each._work is None and thread.is_alive():
                thread.join(0.02)
            each.stop()
        for thread in threads:
            thread.join(SECONDS)
    assert [] == failures


def lag(bootstrap: str, group: str) -> int | None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        (found,) = admin.list_share_group_offsets([group])[group].values()
    return None if found is None else found.lag


def test_functions_and_coroutines_work_at_the_same_time_on_many_records(bootstrap: str) -> None:
    topic, group = make(bootstrap, *map(str, range(200)))
    together = threading.Barrier(4)
    seen: Counter[str] = Counter()
    deserializer = serializers.string()

    @worker(topic, group, concurrency=4, bootstrap_servers=bootstrap, value_deserializer=deserializer)
    def work(record: ShareRecord[bytes | None, str]) -> None:
        """Work."""
        if not seen:
            together.wait(SECONDS)
        seen[record.value] += 1

    @worker(topic, group, concurrency=8, bootstrap_servers=bootstrap, value_deserializer=deserializer)
    async def work_on_loop(record: ShareRecord[bytes | None, str]) -> None:
        await asyncio.sleep(0)
        seen[record.value] += 1

    assert "work" == work.__name__  # type: ignore[attr-defined]  # update_wrapper sets it
    assert "Work." == work.__doc__
    with running(work):
        wait(lambda: 200 == len(seen))
        wait(lambda: 0 == lag(bootstrap, group))
    assert {1} == set(seen.values())
    seen.clear()
    fill(bootstrap, topic, *map(str, range(200, 300)))
    with running(work_on_loop):
        wait(lambda: 100 == len(seen))
        wait(lambda: 0 == lag(bootstrap, group))
    assert {1} == set(seen.values())


def test_a_record_that_fails_comes_again_and_is_rejected_at_last(bootstrap: str) -> None:
    """The exception is the reason in the dead letter."""
    letters = f"dlq.t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        enable = {"errors.deadletterqueue.group.enable": "true"}
        admin.create_topics([NewTopic(letters, 1, 1, config=enable)])
    to_letters = {"errors.deadletterqueue.topic.name": letters}
    topic, group = make(bootstrap, "twice", "never", "bad", "x", "good", **to_letters)
    deliveries: list[tuple[str, int]] = []

    @worker(topic, group, attempts=3, reject_on=(KeyError,), backoff_s=0, bootstrap_servers=bootstrap)
    def work(record: ShareRecord[bytes | None, bytes | None]) -> None:
        assert record.value is not None
        value = record.value.decode()
        deliveries.append((value, record.delivery_count))
        if value == "never" or (value == "twice" and record.delivery_count < 2):
            raise ValueError(value)
        if value == "bad":
            raise KeyError(value)

    with running(work):
        wait(lambda: 8 == len(deliveries))
        wait(lambda: 0 == lag(bootstrap, group))
    expected = [("bad", 1), ("good", 1), ("never", 1), ("never", 2), ("never", 3)]
    assert [*expected, ("twice", 1), ("twice", 2), ("x", 1)] == sorted(deliveries)
    reasons: set[bytes | None] = set()
    with Consumer(letters, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reader:
        deadline = time.monotonic() + SECONDS
        while len(reasons) < 2:
            assert time.monotonic() < deadline, reasons
            reasons |= {dict(each.headers)["__dlq.errors.message"] for each in reader.poll(1.0)}
    assert {b"KeyError: 'bad'", b"ValueError: never"} == reasons


def test_a_record_that_fails_waits_longer_each_time(bootstrap: str) -> None:
    """Whatever the group's settings say; with None they count."""
    week = {"kalda.share.redelivery.backoff.ms": "604800000"}
    topic, group = make(bootstrap, "job", **week)
    times: list[float] = []

    def fail(record: ShareRecord[bytes | None, bytes | None]) -> None:
        times.append(time.monotonic())
        raise ValueError(record)

    patient = worker(topic, group, attempts=4, backoff_s=0.2, backoff_max_s=0.3, bootstrap_servers=bootstrap)
    with running(patient(fail)):
        wait(lambda: 4 == len(times))
        wait(lambda: 0 == lag(bootstrap, group))
    waits = [after - before for before, after in pairwise(times)]
    assert [True] * 3 == [wait >= least for wait, least in zip(waits, (0.19, 0.29, 0.29), strict=True)]

    fill(bootstrap, topic, "for a week", "last")
    seen: list[bytes | None] = []

    @worker(topic, group, concurrency=1, backoff_s=None, bootstrap_servers=bootstrap)
    def work(record: ShareRecord[bytes | None, bytes | None]) -> None:
        seen.append(record.value)
        if record.value == b"for a week":
            raise ValueError(record)

    with running(work):
        wait(lambda: b"last" in seen)
        wait(lambda: 1 == lag(bootstrap, group))
    assert [b"for a week", b"last"] == seen


@pytest.mark.parametrize("error", [StopIteration, SystemExit, asyncio.CancelledError])
def test_whatever_a_function_raises_fails_its_record_and_not_the_worker(
    bootstrap: str, error: type[BaseException]
) -> None:
    topic, group = make(bootstrap)
    seen: list[tuple[bytes | None, int]] = []

    @worker(topic, group, attempts=2, backoff_s=0, bootstrap_servers=bootstrap)
    def in_thread(record: ShareRecord[bytes | None, bytes | None]) -> None:
        seen.append((record.value, record.delivery_count))
        if record.value == b"bad":
            raise error

    @worker(topic, group, attempts=2, backoff_s=0, bootstrap_servers=bootstrap)
    async def on_loop(record: ShareRecord[bytes | None, bytes | None]) -> None:
        in_thread(record)

    for each in (in_thread, on_loop):
        fill(bootstrap, topic, "bad", "good")
        with running(each):
            wait(lambda: 3 == len(seen))
            wait(lambda: 0 == lag(bootstrap, group))
        assert [(b"bad", 1), (b"bad", 2), (b"good", 1)] == sorted(seen)
        seen.clear()


def test_results_are_stored_before_a_record_is_accepted(bootstrap: str) -> None:
    topic, group = make(bootstrap, "1", "2", "not a number", "3")
    results, _ = make(bootstrap)

    @worker(
        topic,
        group,
        bootstrap_servers=bootstrap,
        value_deserializer=int,
        results_topic=results,
        result_serializer=serializers.json(),
    )
    async def square(record: ShareRecord[bytes | None, int]) -> dict[str, int] | None:
        return None if record.value == 2 else {"square": record.value**2}

    with (
        running(square),
        Consumer(
            results,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=serializers.json(),
        ) as consumer,
    ):
        found = [next(consumer), next(consumer)]
        wait(lambda: 0 == lag(bootstrap, group))
    assert [1, 9] == sorted(each.value["square"] for each in found)
    assert {(b"k", (("trace", b"1"),))} == {(each.key, each.headers) for each in found}


def test_a_record_behind_its_time_limit_fails(bootstrap: str) -> None:
    """A coroutine is cancelled; a thread goes on, and its place stays taken."""
    topic, group = make(bootstrap, "slow")
    events: list[str] = []
    release = threading.Event()

    @worker(topic, group, attempts=2, time_limit_s=0.2, bootstrap_servers=bootstrap)
    async def on_loop(record: ShareRecord[bytes | None, bytes | None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append(f"cancelled {record.delivery_count}")

    with running(on_loop):
        wait(lambda: ["cancelled 1", "cancelled 2"] == events)
        wait(lambda: 0 == lag(bootstrap, group))

    @worker(topic, group, concurrency=1, attempts=1, time_limit_s=0.2, bootstrap_servers=bootstrap)
    def in_thread(record: ShareRecord[bytes | None, bytes | None]) -> None:
        events.append(f"began {record.offset}")
        release.wait(SECONDS)

    events.clear()
    fill(bootstrap, topic, "stuck", "next")
    with running(in_thread):
        wait(lambda: 1 == lag(bootstrap, group))
        assert ["began 1"] == events
        release.set()
        wait(lambda: 0 == lag(bootstrap, group))
    assert ["began 1", "began 2"] == events


def test_a_record_that_takes_longer_than_its_lock_stays_with_its_worker(bootstrap: str) -> None:
    """With a stop in the middle: the worker finishes it, and goes on renewing meanwhile."""
    topic, group = make(bootstrap, "long", **{"share.record.lock.duration.ms": "6000"})
    finish = threading.Event()
    deliveries: list[int] = []

    def long(record: ShareRecord[bytes | None, bytes | None]) -> None:
        deliveries.append(record.delivery_count)
        finish.wait(SECONDS)

    first, second = (worker(topic, group, concurrency=2, bootstrap_servers=bootstrap)(long) for _ in range(2))
    timers = [threading.Timer(7, first.stop), threading.Timer(14, finish.set)]
    with running(second):
        with running(first):
            wait(lambda: bool(deliveries))
            for timer in timers:
                timer.start()
            for timer in timers:
                timer.join()
        wait(lambda: 0 == lag(bootstrap, group))
    assert [1] == deliveries


def test_what_is_not_finished_in_time_is_released_and_comes_again_at_once(bootstrap: str) -> None:
    """It has not failed, so it does not wait for the back-off of the group."""
    topic, group = make(bootstrap, "job", **{"kalda.share.redelivery.backoff.ms": "604800000"})
    counts: list[int] = []

    @worker(topic, group, stop_timeout_s=0.1, bootstrap_servers=bootstrap)
    async def endless(record: ShareRecord[bytes | None, bytes | None]) -> None:
        counts.append(record.delivery_count)
        await asyncio.Event().wait()

    with running(endless):
        wait(lambda: [1] == counts)
    with running(endless):
        wait(lambda: [1, 2] == counts)


PROGRAM = """
import sys
import kalda

@kalda.worker(sys.argv[2], sys.argv[3], concurrency=2)
def work(record):
    print("began", record.offset, flush=True)
    sys.stdin.readline()
    print("ended", record.offset, flush=True)

work.run(bootstrap_servers=sys.argv[1])
print("stopped", flush=True)
"""


def test_sigterm_finishes_what_is_under_way(bootstrap: str) -> None:
    topic, group = make(bootstrap, "a")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, bootstrap, topic, group],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "began 0\n" == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        fill(bootstrap, topic, "b")
        process.stdin.write("\n")
        process.stdin.flush()
        rest = process.stdout.read()
        assert 0 == process.wait(SECONDS)
    assert re.fullmatch(r"ended 0\nstopped\n", rest)
    assert 1 == lag(bootstrap, group)


def test_the_record_of_a_killed_worker_comes_again(bootstrap: str) -> None:
    """The end of its connection gives it back, and the delivery counts: the record may be what killed it."""
    topic, group = make(bootstrap, "a", **{"share.record.lock.duration.ms": "60000"})
    counts: list[int] = []
    command = [sys.executable, "-c", PROGRAM, bootstrap, topic, group]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "began 0\n" == process.stdout.readline()
        process.kill()

    @worker(topic, group, bootstrap_servers=bootstrap)
    def work(record: ShareRecord[bytes | None, bytes | None]) -> None:
        counts.append(record.delivery_count)

    with running(work):
        wait(lambda: [2] == counts)


def test_arguments_are_checked(bootstrap: str) -> None:
    wrong: Any = worker
    with pytest.raises(ClientConfigError, match="concurrency=0 is not allowed"):
        worker("t", "g", concurrency=0)
    with pytest.raises(ClientConfigError, match="attempts=True is not allowed"):
        worker("t", "g", attempts=True)
    with pytest.raises(ClientConfigError, match="time_limit_s=-1 is not allowed"):
        worker("t", "g", time_limit_s=-1)
    with pytest.raises(ClientConfigError, match=r"backoff_s=-1 is not allowed.*0 to 604800 \(a week\)"):
        worker("t", "g", backoff_s=-1)
    with pytest.raises(ClientConfigError, match="backoff_max_s=nan is not allowed"):
        worker("t", "g", backoff_max_s=float("nan"))
    with pytest.raises(ClientConfigError, match="result_serializer needs results_topic"):
        worker("t", "g", result_serializer=str.encode)
    with pytest.raises(ValueError, match="it takes a function"):
        wrong("t", "g")(5)
    work = worker("t", "g")(len)
    record: ShareRecord[bytes | None, bytes | None] = ShareRecord(
        "t", 0, 1, 2, kalda.TimestampType.CREATE_TIME, None, b"v", (), -1, 1, None, 1
    )
    assert 12 == work(record), "a test calls the function"
    with pytest.raises(ClientConfigError, match=r"bootstrap\.servers"):
        work.run()
    work.stop()


def test_a_worker_that_the_cluster_refuses_ends_with_the_error(bootstrap: str) -> None:
    _, group = make(bootstrap)
    with pytest.raises(BrokerResponseError, match="INVALID_TOPIC_EXCEPTION"):
        worker("no topic!", group, bootstrap_servers=bootstrap)(len).run()


def test_one_run_at_a_time(bootstrap: str) -> None:
    topic, group = make(bootstrap, "a")
    began = asyncio.Event()

    @worker(topic, group, bootstrap_servers=bootstrap)
    async def work(record: ShareRecord[bytes | None, bytes | None]) -> None:
        began.set()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work.run_async())
            await began.wait()
            with pytest.raises(IllegalStateError, match="the worker work runs already"):
                await work.run_async()
            work.stop()

    asyncio.run(main())

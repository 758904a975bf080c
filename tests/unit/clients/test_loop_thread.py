import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from kalda.clients import loop_thread
from kalda.clients.errors import IllegalStateError, RequestTimedOutError
from kalda.clients.loop_thread import LoopThread, LoopWatch
from kalda.clients.producer.record_future import BatchResult
from kalda.runtime.system.loop_logger import drain_log


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("kalda-test")
    yield made
    made.close()


def wait_ended(name: str) -> None:
    deadline = time.monotonic() + 60
    while any(each.name == name for each in threading.enumerate()):
        assert time.monotonic() < deadline, f"{name} still runs"
        time.sleep(0.001)


async def fail() -> None:
    raise ValueError("from the coroutine")


def test_a_call_returns_the_result_or_raises_the_exception(thread: LoopThread) -> None:
    assert 5 == thread.call(asyncio.sleep(0, 5))
    with pytest.raises(ValueError, match="from the coroutine"):
        thread.call(fail())


def test_a_task_is_dropped_on_the_loops_thread(thread: LoopThread) -> None:
    """Its end runs a callback of `weakref`, where Python prints an interrupt of the program and goes on."""
    dropped: list[str] = []
    references: list[object] = []

    def watch() -> None:
        task = asyncio.current_task()
        assert task is not None
        references.append(weakref.ref(task, lambda _: dropped.append(threading.current_thread().name)))

    async def watched(error: Exception | None) -> None:
        watch()
        if error is not None:
            raise error

    for _ in range(50):
        thread.call(watched(None))
        with pytest.raises(OSError, match="of the coroutine"):
            thread.call(watched(OSError("of the coroutine")))
    gc.collect()
    assert {thread.name} == set(dropped)


def test_a_call_that_is_interrupted_while_it_starts_is_cancelled(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that went on by itself took its result: the same call again did not find it."""
    schedule = thread.loop.call_soon_threadsafe

    def interrupted(callback: Callable[..., object], *arguments: object) -> None:
        schedule(callback, *arguments)
        monkeypatch.undo()
        raise KeyboardInterrupt

    coroutine = asyncio.sleep(3600)
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.call(coroutine)

    for _ in range(3):
        thread.call(asyncio.sleep(0))
    assert inspect.CORO_CLOSED == inspect.getcoroutinestate(coroutine)


def test_many_threads_may_call_at_once(thread: LoopThread) -> None:
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: results.append(thread.call(asyncio.sleep(0, number))))
        for number in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert list(range(20)) == sorted(results)


def test_close_ends_the_thread_and_cancels_what_runs() -> None:
    thread = LoopThread("kalda-closing")
    ended = threading.Event()

    async def run_for_ever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    call = thread.new_call(run_for_ever())
    call.start()
    thread.call(asyncio.sleep(0))
    thread.close()
    thread.close()

    assert ended.is_set()
    assert call.done()
    with pytest.raises(IllegalStateError, match="closed during the call"):
        call.result()
    assert thread.loop.is_closed()
    wait_ended("kalda-closing")
    with pytest.raises(IllegalStateError, match="kalda-closing is closed"):
        thread.call(asyncio.sleep(0))
    thread.call_soon(print)


def test_a_call_that_close_cuts_off_gets_an_error() -> None:
    thread = LoopThread("kalda-cut")
    closer = threading.Timer(0.05, thread.close)
    closer.start()
    with pytest.raises(IllegalStateError, match="kalda-cut was closed during the call"):
        thread.call(asyncio.sleep(3600))
    closer.join()


def test_a_callback_cannot_wait_for_its_own_thread(thread: LoopThread) -> None:
    """Java's clients would hang here; a clear error is better."""

    async def callback() -> None:
        thread.call(asyncio.sleep(0))

    with pytest.raises(IllegalStateError, match="called from one of its own callbacks"):
        thread.call(callback())


def test_close_from_the_own_thread_does_not_wait_for_itself() -> None:
    thread = LoopThread("kalda-self")

    thread.call_soon(thread.close)

    wait_ended("kalda-self")
    assert thread.is_closed


def test_an_interrupt_cancels_the_coroutine(thread: LoopThread) -> None:
    """Ctrl-C in a blocked poll must not leave the poll running."""
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    assert threading.current_thread() is threading.main_thread()
    # The process, not this thread: pytest-timeout's own thread must not swallow it.
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.call(wait())
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()
    assert cancelled.wait(60)
    assert 1 == thread.call(asyncio.sleep(0, 1))


def test_a_client_that_is_dropped_without_close_ends_its_thread() -> None:
    thread = LoopThread("kalda-dropped")
    dropped = weakref.ref(thread)

    del thread
    gc.collect()

    assert dropped() is None
    wait_ended("kalda-dropped")


def test_a_call_ends_when_a_callback_holds_the_thread_up(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback waits for a lock that the caller holds, such as that of a logging handler."""
    monkeypatch.setattr(loop_thread, "STANDSTILL_SECONDS_MIN", 0.0)
    monkeypatch.setattr(loop_thread, "WATCH_SECONDS", 0.01)
    lock = threading.Lock()

    def wait_for_the_lock() -> None:
        with lock:
            pass

    with lock:
        thread.call_soon(wait_for_the_lock)
        with pytest.raises(
            RequestTimedOutError, match=r"kalda-test has not answered .* in wait_for_the_lock"
        ):
            thread.call(asyncio.sleep(0), 0.0)
    assert 5 == thread.call(asyncio.sleep(0, 5))


def test_a_call_may_take_longer_than_its_time_while_the_thread_runs(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs on the loop has its own time-outs, with messages that say more."""
    monkeypatch.setattr(loop_thread, "STANDSTILL_SECONDS_MIN", 0.0)
    monkeypatch.setattr(loop_thread, "WATCH_SECONDS", 0.001)
    watched: list[None] = []
    enough = asyncio.Event()
    check = LoopWatch.check

    def noted(watch: LoopWatch) -> None:
        watched.append(None)
        if len(watched) == 10:
            thread.call_soon(enough.set)
        check(watch)

    async def run() -> int:
        await enough.wait()
        return 5

    monkeypatch.setattr(LoopWatch, "check", noted)
    assert 5 == thread.call(run(), 30.0)


def test_an_interrupted_call_leaves_no_lock_that_the_thread_waits_for(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may raise where Python code has taken the lock of a condition and not noted it."""
    # `current_thread` takes a condition itself in threads that others made, such as those of the test runner.
    caller = threading.get_ident()
    enter = threading.Condition.__enter__

    def interrupted(condition: threading.Condition) -> bool:
        entered = enter(condition)
        assert threading.get_ident() != caller, "the caller could leave this condition locked"
        return entered

    monkeypatch.setattr(threading.Condition, "__enter__", interrupted)
    assert 5 == thread.call(asyncio.sleep(0.01, 5))
    result = BatchResult("t", 0)
    thread.call_soon(result.complete, 7, -1)
    assert result.wait(30.0)


def test_a_pause_of_the_whole_process_is_no_standstill(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads stop and go on; the caller may look before the loop has had a turn."""
    monkeypatch.setattr(thread, "call_soon", lambda _: None)
    watch = LoopWatch(thread, 5.0)
    for _ in range(5):
        watch.check()
    with pytest.raises(RequestTimedOutError, match="has not answered for 5 s"):
        watch.check()


def test_a_time_out_of_the_coroutine_is_its_own(thread: LoopThread) -> None:
    async def run() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        thread.call(run())


FORK = """
import asyncio, os, sys
from kalda.clients.errors import IllegalStateError
from kalda.clients.loop_thread import LoopThread

thread = LoopThread("kalda-parent")
child = os.fork()
if child == 0:
    try:
        thread.call(asyncio.sleep(0))
    except IllegalStateError as error:
        print(error, flush=True)
    thread.close()
    LoopThread("kalda-child").call(asyncio.sleep(0))
    print("a loop of its own works", flush=True)
    sys.exit(0)
assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("the parent goes on:", thread.call(asyncio.sleep(0, 7)), flush=True)
thread.close()
"""

EXIT = """
import asyncio
from kalda.clients.loop_thread import LoopThread

thread = LoopThread("kalda-forgotten")
thread.new_call(asyncio.sleep(3600)).start()
print("end of the program")
"""


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_fork_gets_a_clear_error_and_the_parent_goes_on() -> None:
    done = run_program(FORK)

    assert "cannot be used in its fork" in done.stdout
    assert "create one in each process" in done.stdout
    assert "a loop of its own works" in done.stdout
    assert "the parent goes on: 7" in done.stdout
    assert 0 == done.returncode, done.stderr


def test_a_program_that_forgets_to_close_exits() -> None:
    done = run_program(EXIT)

    assert (0, "end of the program\n") == (done.returncode, done.stdout), done.stderr


SHUTDOWN = """
import asyncio
import atexit
from kalda.clients.loop_thread import LoopThread

class Owner:
    def __init__(self):
        self.thread = LoopThread("kalda-owned")

    def use(self):
        try:
            print(self.thread.call(asyncio.sleep(0, 7)))
        except Exception as error:
            print(type(error).__name__, error)

    def __del__(self):
        self.use()
        self.thread.close()

owner = Owner()
atexit.register(owner.use)
"""


def test_a_call_at_the_end_of_the_interpreter_is_refused_at_once() -> None:
    """It waited 5 s for a thread that Python had ended, and said that a callback blocks."""
    done = run_program(SHUTDOWN)

    assert 0 == done.returncode, done.stderr
    first, second = done.stdout.splitlines()
    assert "7" == first
    assert second.startswith(
        "IllegalStateError kalda-owned cannot be used any more: the interpreter shuts down"
    )


def test_a_callback_that_exits_does_not_end_the_thread(
    thread: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's other callers waited for ever: an exit ends the program in the main thread only."""

    async def leave() -> None:
        raise SystemExit(9)

    thread.call_soon(sys.exit, 9)
    assert 5 == thread.call(asyncio.sleep(0, 5))
    assert drain_log(10)
    assert "tried to end the program" in caplog.text
    with pytest.raises(SystemExit):
        thread.call(leave())
    assert 5 == thread.call(asyncio.sleep(0, 5))

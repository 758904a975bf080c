"""One thread at a time, and how it is woken."""

import functools
import itertools
import threading
from collections.abc import Callable

from kalda.clients.consumer.caller_thread import CallerQueue, CallerTask, OneThreadAtATime, WakeSignal
from kalda.clients.errors import IllegalStateError
from tests.interrupts import interrupted_at


class Guarded:
    """What a thread at a time may use."""

    def __init__(self) -> None:
        self.guard = OneThreadAtATime("consumer-1", self)

    def use(self, call: Callable[[], object] = lambda: None) -> None:
        with self.guard:
            call()

    def is_refused(self) -> bool:
        """Whether another thread may not use it now."""
        refused: list[str] = []

        def enter() -> None:
            try:
                self.use()
            except IllegalStateError as error:
                refused.append(str(error))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert all("consumer-1 is in use by thread" in each for each in refused)
        return bool(refused)


def leave_to_another_thread(guarded: Guarded) -> bool:
    """Return whether another thread is refused, asked outside the methods of `guarded`."""
    refused: list[IllegalStateError] = []

    def enter() -> None:
        try:
            with guarded.guard:
                pass
        except IllegalStateError as error:
            refused.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return bool(refused)


def test_the_same_thread_may_enter_again_and_another_may_not() -> None:
    """A listener inside poll calls commit."""
    guarded = Guarded()
    refused: list[bool] = []
    guarded.use(lambda: guarded.use(lambda: refused.append(guarded.is_refused())))
    assert [True] == refused
    assert not guarded.is_refused(), "the first thread has left"


def test_an_interrupt_anywhere_leaves_no_owner() -> None:
    """The consumer was "in use by thread None" for ever."""
    guarded = Guarded()
    for step in itertools.count():
        if not interrupted_at(step, guarded.use):
            break
        assert not leave_to_another_thread(guarded), f"after an interrupt at step {step}"
        guarded.use()
    assert step, "nothing was interrupted"


def test_a_thread_that_has_ended_owns_nothing() -> None:
    guarded = Guarded()
    thread = threading.Thread(target=guarded.guard.__enter__)
    thread.start()
    thread.join()
    guarded.use()


def test_a_signal_set_before_the_wait_is_not_lost() -> None:
    signal = WakeSignal()
    assert not signal.wait(0)
    signal.set()
    signal.set()
    assert signal.wait(1.0)
    assert not signal.wait(0)


class Task(CallerTask):
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def run(self) -> None:
        self.is_started = True
        self.call()


def test_an_interrupt_anywhere_leaves_a_rebalance_for_the_next_call() -> None:
    """The loop waits for it; without it the member never gets its partitions."""
    for step in itertools.count():
        calls: list[str] = []
        queue = CallerQueue(WakeSignal())
        queue.add_rebalance(Task(functools.partial(calls.append, "rebalance")))
        is_interrupted = interrupted_at(step, functools.partial(queue.run, with_rebalances=True))
        queue.run(with_rebalances=True)
        assert ["rebalance"] == calls, f"after an interrupt at step {step}"
        if not is_interrupted:
            break
    assert step, "nothing was interrupted"


def test_a_rebalance_in_a_call_that_a_rebalance_makes_is_not_the_same_one() -> None:
    """A listener closes its consumer, which calls the listener once more."""
    calls: list[str] = []
    queue = CallerQueue(WakeSignal())

    def close() -> None:
        calls.append("first")
        queue.add_rebalance(Task(functools.partial(calls.append, "second")))
        queue.run(with_rebalances=True)

    queue.add_rebalance(Task(close))
    queue.run(with_rebalances=True)
    assert ["first", "second"] == calls


def test_rebalances_wait_for_a_method_that_may_change_the_assignment() -> None:
    calls: list[str] = []
    signal = WakeSignal()
    queue = CallerQueue(signal)
    queue.add_rebalance(Task(lambda: calls.append("rebalance")))
    queue.add(lambda: calls.append("committed"))
    assert signal.wait(0)
    queue.run(with_rebalances=False)
    assert ["committed"] == calls
    queue.run(with_rebalances=True)
    assert ["committed", "rebalance"] == calls

"""One thread at a time, and how it is woken."""

import threading

from kalda.clients.consumer.caller_thread import CallerQueue, OneThreadAtATime, WakeSignal
from kalda.clients.errors import IllegalStateError


def test_the_same_thread_may_enter_again_and_another_may_not() -> None:
    """A listener inside poll calls commit."""
    guard = OneThreadAtATime("consumer-1")
    refused: list[str] = []

    def enter() -> None:
        try:
            with guard:
                pass
        except IllegalStateError as error:
            refused.append(str(error))

    def enter_in_another_thread() -> None:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()

    with guard:
        with guard:
            pass
        enter_in_another_thread()
    assert 1 == len(refused)
    assert "consumer-1 is in use by thread" in refused[0]
    enter_in_another_thread()
    assert 1 == len(refused), "the first thread has left"


def test_a_signal_set_before_the_wait_is_not_lost() -> None:
    signal = WakeSignal()
    assert not signal.wait(0)
    signal.set()
    signal.set()
    assert signal.wait(1.0)
    assert not signal.wait(0)


def test_rebalances_wait_for_a_method_that_may_change_the_assignment() -> None:
    calls: list[str] = []
    signal = WakeSignal()
    queue = CallerQueue(signal)
    queue.add(lambda: calls.append("rebalance"), is_rebalance=True)
    queue.add(lambda: calls.append("committed"))
    assert signal.wait(0)
    queue.run(with_rebalances=False)
    assert ["committed"] == calls
    queue.run(with_rebalances=True)
    assert ["committed", "rebalance"] == calls

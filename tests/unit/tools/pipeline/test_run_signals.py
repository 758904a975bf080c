"""How `kalda pipeline run` is stopped."""

import os
import signal

import pytest

pytest.importorskip("sqlglot")

from kalda.tools.pipeline.run import stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_signal_that_ends_a_command_requests_a_stop(number: signal.Signals) -> None:
    """A closed terminal ended the driver in the middle of a batch; Ctrl-C twice asks for nothing more."""
    before = signal.signal(number, lambda *_: None)
    requests: list[int] = []
    try:
        with stop_signals(lambda: requests.append(number)):
            for _ in range(3):
                os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert [number] * 3 == requests


def test_nohup_keeps_a_run_alive_without_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    requests: list[None] = []
    try:
        with stop_signals(lambda: requests.append(None)):
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.SIG_IGN is signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [] == requests

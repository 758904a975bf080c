"""Starts the threads of PyIceberg, which live as long as the process."""

import threading
from concurrent.futures import wait

import pytest
from pyiceberg.utils.concurrent import ExecutorFactory


def start_threads() -> None:
    """Start all threads of the executor: one, or as many as the executor of an earlier test may have.

    An executor starts a thread for work that finds none idle; a test would seem to leave that thread behind.
    """
    with pytest.MonkeyPatch.context() as monkey:
        monkey.setenv("PYICEBERG_MAX_WORKERS", "1")
        executor = ExecutorFactory.get_or_create()
    together = threading.Barrier(executor._max_workers, timeout=60)  # type: ignore[attr-defined]  # what Executor hides
    wait([executor.submit(together.wait) for _ in range(together.parties)])

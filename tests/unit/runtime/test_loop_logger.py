"""What a client logs on its own thread reaches the handlers without that thread."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from kalda.runtime.system import loop_logger as module
from kalda.runtime.system.loop_logger import LoopLogger, drain_log, loop_logger, mark_loop_thread

WAIT_SECONDS = 30.0


class Notes(logging.Handler):
    """Notes each message and the thread that brought it; waits while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.gate.wait(WAIT_SECONDS)
        self.seen.append((record.getMessage(), threading.current_thread().name))


@pytest.fixture
def logger() -> logging.Logger:
    return loop_logger(f"kalda.test.{uuid.uuid4().hex}")


@pytest.fixture
def notes(logger: logging.Logger) -> Iterator[Notes]:
    made = Notes()
    logger.addHandler(made)
    logger.setLevel(logging.INFO)
    yield made
    logger.removeHandler(made)


def on_loop_thread(function: Callable[[], None]) -> threading.Thread:
    """Run a function as the thread of a client would."""

    def run() -> None:
        mark_loop_thread()
        function()

    thread = threading.Thread(target=run, name="loop")
    thread.start()
    return thread


def test_a_loop_thread_does_not_wait_for_a_handler_whose_lock_a_caller_holds(
    logger: logging.Logger, notes: Notes
) -> None:
    """The caller is in that handler, sends a record to Kafka, and waits for the loop's thread."""
    values = [1]
    notes.acquire()
    try:
        thread = on_loop_thread(lambda: logger.info("found %s", values))
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
        values.append(2)
    finally:
        notes.release()
    assert drain_log(WAIT_SECONDS)
    assert [("found [1]", "kalda-log")] == notes.seen


def test_a_loop_thread_does_not_wait_for_the_lock_of_logging(logger: logging.Logger, notes: Notes) -> None:
    """`logging.config` holds it while it closes handlers; each change empties the cache of levels."""

    def log() -> None:
        logger.info("info")
        logger.debug("debug")

    with logging._lock:  # type: ignore[attr-defined]  # typeshed leaves it out
        logging.root.manager._clear_cache()  # type: ignore[attr-defined]
        thread = on_loop_thread(log)
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert drain_log(WAIT_SECONDS)
    assert ["info"] == [message for message, _ in notes.seen]


@pytest.mark.parametrize("starts_late", [False, True])
def test_a_handler_that_drains_does_not_wait_for_itself(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, starts_late: bool
) -> None:
    """It may close the producer that it sends with, also before who started the thread goes on."""
    drained: list[bool] = []
    is_drained = threading.Event()

    class Draining(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            drained.append(drain_log(WAIT_SECONDS))
            is_drained.set()

    class LateThread(threading.Thread):
        def start(self) -> None:
            super().start()
            is_drained.wait(WAIT_SECONDS)

    if starts_late:
        monkeypatch.setattr(module, "threading", SimpleNamespace(**{**vars(threading), "Thread": LateThread}))
        monkeypatch.setattr(module, "_hand", module._Hand())
    logger.addHandler(Draining())
    logger.setLevel(logging.INFO)
    on_loop_thread(lambda: logger.info("one")).join(WAIT_SECONDS)
    assert drain_log(WAIT_SECONDS)
    assert [False] == drained


def test_a_record_is_handled_once_where_all_threads_seem_to_run_the_loop(
    logger: logging.Logger, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gevent's threads share the values of a `threading.local` that was made before `patch_all`."""
    monkeypatch.setattr(module, "_threads", SimpleNamespace(is_loop=True))
    logger.info("once")
    assert drain_log(WAIT_SECONDS)
    assert drain_log(WAIT_SECONDS)
    assert [("once", "kalda-log")] == notes.seen


def test_other_threads_call_handlers_themselves(logger: logging.Logger, notes: Notes) -> None:
    logger.info("direct")
    assert [("direct", threading.current_thread().name)] == notes.seen


def test_records_for_a_slow_handler_are_bounded(
    logger: logging.Logger, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:

    def log() -> None:
        for number in range(100):
            logger.info("%d", number)

    monkeypatch.setattr(module, "RECORDS_MAX", 5)
    notes.gate.clear()
    on_loop_thread(log).join(WAIT_SECONDS)
    notes.gate.set()
    assert drain_log(WAIT_SECONDS)
    on_loop_thread(lambda: logger.info("last")).join(WAIT_SECONDS)
    assert drain_log(WAIT_SECONDS)
    messages = [message for message, _ in notes.seen]
    assert ["0", "1", "2"] == [each for each in messages if each.isdecimal()][:3]
    assert any("log records were dropped" in message for message in messages)
    assert "last" in messages
    assert len(messages) <= 10


def test_a_class_that_the_program_has_chosen_for_its_loggers_stays() -> None:
    class Own(logging.Logger):
        pass

    name = f"kalda.test.{uuid.uuid4().hex}"
    logging.setLoggerClass(Own)
    try:
        assert Own is type(loop_logger(name))
    finally:
        logging.setLoggerClass(logging.Logger)
    assert LoopLogger is type(loop_logger(f"{name}.other"))

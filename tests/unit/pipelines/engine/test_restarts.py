"""When a failed pipeline starts again."""

import pytest

from kalda.pipelines.engine.errors import (
    BreakerOpenError,
    NotThereYetError,
    PoisonBatchError,
    SourceLostError,
)
from kalda.pipelines.engine.restarts import Restarts, first_line, is_explained
from kalda.pipelines.spec.model import Restart
from kalda.pipelines.tables import SchemaRefusedError

POLICY = Restart(tries=4, backoff_ms=100, backoff_max_ms=300)


def test_the_wait_doubles_up_to_a_limit() -> None:
    """A broker that restarts needs seconds, an outage must not be hammered."""
    restarts = Restarts("orders", POLICY)
    assert [100, 200, 300] == [restarts.wait_ms(OSError("down"), 7) for _ in range(3)]


def test_a_batch_that_fails_too_often_stops_the_pipeline() -> None:
    """The message names the batch, the number of tries and the cause."""
    restarts = Restarts("orders", POLICY)
    for _ in range(3):
        restarts.wait_ms(OSError("down"), 7)
    with pytest.raises(PoisonBatchError, match="orders failed 4 times in batch 7, last with: down"):
        restarts.wait_ms(OSError("down"), 7)


def test_progress_between_failures_begins_the_count_again() -> None:
    """A pipeline that fails once a day must not stop after four days."""
    restarts = Restarts("orders", POLICY)
    for batch_id in range(10):
        assert 100 == restarts.wait_ms(OSError("down"), batch_id)


def test_a_pipeline_without_batches_fails_for_good_only_without_progress() -> None:
    """A mirror that meets one restart of a broker a month must not stop after five months."""
    restarts = Restarts("mirror", POLICY)
    for _ in range(10):
        assert 100 == restarts.wait_ms(OSError("down"), None)
        restarts.made_progress()
    for _ in range(3):
        restarts.wait_ms(OSError("down"), None)
    with pytest.raises(PoisonBatchError):
        restarts.wait_ms(OSError("down"), None)


def test_a_run_that_lasted_long_begins_the_count_again() -> None:
    """A quiet topic has no batch between two outages of its broker that are a week apart."""
    restarts = Restarts("orders", POLICY)
    for _ in range(10):
        assert 100 == restarts.wait_ms(OSError("down"), None, 600_000)


def test_an_open_breaker_is_final() -> None:
    """Trying again would find the same bad records."""
    with pytest.raises(BreakerOpenError):
        Restarts("orders", POLICY).wait_ms(BreakerOpenError("bad"), 7)


def test_what_is_not_there_yet_is_looked_for_without_end() -> None:
    """A table appears with the first batch of another pipeline, which may be hours later."""
    restarts = Restarts("orders", POLICY)
    assert [100, 200, *[300] * 8] == [restarts.wait_ms(NotThereYetError("no table"), None) for _ in range(10)]


def test_the_error_of_a_worker_is_one_line() -> None:
    """Spark's message is a page of traces."""
    text = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 3, in invoke
    run()
kalda.pipelines.direct.range_job.BadRecordError: orders-0 at offset 7: MalformedValue: no JSON

\tat org.apache.spark.api.python"""
    assert "orders-0 at offset 7: MalformedValue: no JSON" == first_line(RuntimeError(text))
    assert "ValueError" == first_line(ValueError())


def test_of_errors_raised_from_each_other_the_last_counts() -> None:
    """It is the one that names the place."""
    text = """Job aborted: Lost task 0.0 (TID 3): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "writer.py", line 9, in write
OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "storage.py", line 31, in errors_that_name
    raise OSError(error.errno, os.strerror(error.errno), location) from error
OSError: [Errno 28] No space left on device: 's3://lake/orders'

\tat org.apache.spark.api.python.BasePythonRunner
Driver stacktrace:
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
OSError: other"""
    assert "[Errno 28] No space left on device: 's3://lake/orders'" == first_line(RuntimeError(text))


OF_THE_SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform latestOffset: kalda.spark.source.data_loss.RecordsGoneError: topic src was created again. Advice.
=== Streaming Query ===
Identifier: orders"""
OF_A_TASK = """Job aborted:
Traceback (most recent call last):
  File "reader.py", line 3, in read
kalda.spark.source.data_loss.RecordsGoneError: topic src was created again. Advice.

\tat org.apache.spark.api.python.BasePythonRunner"""


@pytest.mark.parametrize("text", [OF_THE_SOURCE, OF_A_TASK], ids=["of the source", "of a task"])
def test_records_that_are_gone_stop_the_pipeline_at_the_first_failure(text: str) -> None:
    """No further try finds them, and "it goes on with the same batch" would be wrong advice."""
    with pytest.raises(SourceLostError) as caught:
        Restarts("orders", POLICY).wait_ms(RuntimeError(text), 7)
    assert "orders: topic src was created again. Advice." == str(caught.value)
    assert is_explained(RuntimeError(text))
    assert not is_explained(
        RuntimeError("kalda.pipelines.direct.range_job.LostRowsError: t-0: the target wrote 1 of 2 rows")
    )


@pytest.mark.parametrize(
    "line",
    [
        "kalda.pipelines.direct.row_steps.FailedRowsError: s:f raised ValueError: x; at s.py:3 in f",
        "kalda.pipelines.direct.range_job.BadRecordError: t-0 at offset 7: StepFailed: s:f raised ValueError",
    ],
)
def test_the_error_of_a_python_step_needs_no_traceback(line: str) -> None:
    """The message names the lines of the user's module; the frames of Spark and Kalda would hide them."""
    text = f"job aborted\nTraceback (most recent call last):\n  File 'w.py', line 1\n{line}\n\tat org.Java"
    assert is_explained(RuntimeError(text))


def test_a_refused_schema_stops_the_pipeline_at_the_first_failure() -> None:
    """Each try would read the same columns; fifteen seconds of restarts only hide the message."""
    with pytest.raises(PoisonBatchError) as caught:
        Restarts("orders", POLICY).wait_ms(SchemaRefusedError("column 'new': it is new.", ("new",)), 7)
    assert (
        "orders failed in batch 7, with: column 'new': it is new. It stays stopped; correct the cause "
        "and start it again, it goes on with the same batch"
    ) == str(caught.value)

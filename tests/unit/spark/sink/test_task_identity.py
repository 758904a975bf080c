from pathlib import Path

import pytest

from kalda.spark.sink.markers import Marker, StateFormatError
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.task_identity import (
    BATCH_ID_PROPERTY,
    QUERY_ID_PROPERTY,
    MissingIdentityError,
    TaskIdentity,
    scope_of_query,
    task_identity,
)


class Task:
    """Spark's TaskContext, as far as the sink uses it."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key)

    def partitionId(self) -> int:
        return 3


OPTIONS = SinkOptions(producer=())


def test_a_streaming_task_is_named_by_query_batch_and_part() -> None:
    """The three are the same when the batch runs again."""
    task = Task(**{QUERY_ID_PROPERTY: "q", BATCH_ID_PROPERTY: "12"})
    identity = task_identity(OPTIONS, task)
    assert TaskIdentity("q-sink", 12, 3) == identity
    assert "kalda-q-sink-3" == identity.transactional_id


def test_a_batch_write_is_named_by_its_options() -> None:
    """`foreachBatch` passes the ids on; the job's own properties do not count."""
    options = SinkOptions(producer=(), txn_id="totals", txn_version=7)
    assert TaskIdentity("totals-sink", 7, 3) == task_identity(options, Task())


@pytest.mark.parametrize("properties", [{}, {QUERY_ID_PROPERTY: "q"}, {BATCH_ID_PROPERTY: "1"}])
def test_a_task_without_identity_fails(properties: dict[str, str]) -> None:
    """Exactly once without it would be at least once, unnoticed."""
    with pytest.raises(MissingIdentityError):
        task_identity(OPTIONS, Task(**properties))
    with pytest.raises(MissingIdentityError):
        task_identity(OPTIONS, None)


def test_a_marker_survives_a_round_trip() -> None:
    """It is read by a later version of this code."""
    assert Marker(5, 100) == Marker.decode(Marker(5, 100).encode())


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"version": 2, "batch": 1, "rows": 1}'])
def test_a_foreign_value_is_no_marker(value: bytes) -> None:
    """Rows must not be written or skipped on a guess."""
    with pytest.raises(StateFormatError):
        Marker.decode(value)


def test_the_driver_finds_the_query_in_the_checkpoint(tmp_path: Path) -> None:
    """Without a task that returned, nothing else there names it."""
    (tmp_path / "metadata").write_text('{"id":"q"}')

    for location in (str(tmp_path), tmp_path.as_uri()):
        assert "q-sink" == scope_of_query(SinkOptions(producer=(), checkpoint=location))
    assert "totals-sink" == scope_of_query(SinkOptions(producer=(), txn_id="totals", txn_version=7))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", "\xff"])
def test_a_query_that_nothing_names(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata").write_text(content)

    for location in (None, str(tmp_path), "nosuch://host/path", "relative/path"):
        assert scope_of_query(SinkOptions(producer=(), checkpoint=location)) is None
